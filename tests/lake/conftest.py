"""Spark session of these tests, one per process and in few processes.

A session takes seconds to start and the memory of a JVM. Under xdist, `GROUPS` processes share the
files here and run nothing else before they are done.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pulljobs.lake.spark import session
from tests.lake import class_archive

HERE: Final = Path(__file__).parent
GROUPS: Final = 2
CONF: Final = (
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.default.parallelism", "2"),
    ("spark.driver.memory", "1g"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = sorted(HERE.glob("test_*.py"))
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(f"spark{files.index(item.path) % GROUPS}"))


@pytest.fixture(scope="session", autouse=True)
def quick_java(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Start JVMs quickly. An archive of classes pays off in runs of many tests, as under xdist."""
    options = class_archive.JAVA
    is_spark_needed = any(item.get_closest_marker("spark") for item in request.session.items)
    if is_spark_needed and "PYTEST_XDIST_WORKER" in os.environ:
        options = class_archive.options_with(tmp_path_factory.getbasetemp().parent / "spark.jsa")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", options)
        yield


@pytest.fixture(scope="session")
def python_of_workers() -> Iterator[None]:
    """Path on which Spark's Python workers find what these tests pickle."""
    path = os.pathsep.join(filter(None, [str(HERE.parent.parent), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield


@pytest.fixture(scope="session")
def spark(python_of_workers: None, django_db_setup: None) -> Iterator[SparkSession]:
    """Spark session of two cores, which retries failed tasks.

    Verbs that run in this process use it and leave it running. It ends before the database is
    dropped, because its Python workers leave their connections open.
    """
    with session.open_session("tests", master="local[2,4]", conf=CONF) as started:
        yield started
