"""Fixtures of tests of the lake: the Spark session that they share, and places of lakes.

A session takes seconds to start, many more until its JVM is warm, and much memory. Under xdist one
process runs all files here, and nothing else before they are done.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pulljobs.lake.spark import session
from tests.lake import class_archive, lakes, object_store
from tests.lake.lakes import Place

HERE: Final = Path(__file__).parent
CONF: Final = (
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.default.parallelism", "2"),
    ("spark.driver.memory", "1g"),
)


@pytest.hookimpl(tryfirst=True)  # also before xdist's hook, when this folder is named
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(scope="session")
def quick_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Set variables with which Spark sessions start quickly.

    The archive of Java classes is made only under xdist, where enough sessions use it.
    """
    is_of_many = "PYTEST_XDIST_WORKER" in os.environ
    own = tmp_path_factory.getbasetemp()
    place = os.environ.get("PULLJOBS_TEST_SPARK") or (own.parent if is_of_many else own) / "spark"
    variables = class_archive.variables_of(Path(place), has_archive=is_of_many)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def quick_spark_where_needed(request: pytest.FixtureRequest) -> None:
    """Set the variables for quick starts of Spark, only for tests with the marker `spark`.

    Other tests need not wait until the archive of classes is made.
    """
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("quick_spark")


@pytest.fixture(scope="session", autouse=True)
def store_port() -> Iterator[int]:
    """Port of the S3 server of the session, which runs only for tests that need it.

    Its environment variables are set early, because Spark's Python workers have the variables with
    which its JVM was started.
    """
    port = object_store.choose_port()
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        for name, value in object_store.environment_of(port).items():
            patch.setenv(name, value)
        if lakes.SCHEME:
            stack.enter_context(object_store.serve(port))
        yield port


@pytest.fixture(autouse=True)
def place(tmp_path: Path) -> Iterator[Place]:
    """Place of a lake for one test: a directory, or a place in S3 if PULLJOBS_TEST_LAKE is set."""
    with lakes.lake_at(tmp_path / "lake") as path:
        yield path


@pytest.fixture(scope="session")
def store(store_port: int) -> Iterator[int]:
    """Port of the running S3 server."""
    if lakes.SCHEME:
        yield store_port
        return
    with object_store.serve(store_port):
        yield store_port


@pytest.fixture(scope="session")
def python_of_workers() -> Iterator[None]:
    """Make Spark's Python workers find the modules of functions that these tests send to them."""
    path = os.pathsep.join(filter(None, [str(HERE.parent.parent), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield


@pytest.fixture(scope="session")
def spark(
    quick_spark: None, python_of_workers: None, django_db_setup: None
) -> Iterator[SparkSession]:
    """Spark session of two cores, which retries failed tasks.

    Verbs that run in this process use it and leave it running. It ends before the database is
    dropped, because its Python workers leave their connections open.
    """
    with session.open_session("tests", master="local[2,4]", conf=CONF) as started:
        yield started
