"""One Spark session a process, and few processes that have one.

A session takes seconds to start and a JVM's memory, so under xdist the files here are shared out
to `GROUPS` processes, which run nothing else before they are done.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pulljobs.lake.spark import session

HERE: Final = Path(__file__).parent
GROUPS: Final = 2
CONF: Final = (
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.default.parallelism", "2"),
    ("spark.driver.memory", "1g"),
)
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""No test lasts until the better compiler pays: it took most of their processor time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = sorted(HERE.glob("test_*.py"))
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(f"spark{files.index(item.path) % GROUPS}"))


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", JAVA)
        yield


@pytest.fixture(scope="session")
def python_of_workers() -> Iterator[None]:
    """They load what these tests pickle, wherever pytest was started."""
    path = os.pathsep.join(filter(None, [str(HERE.parent.parent), os.environ.get("PYTHONPATH")]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        yield


@pytest.fixture(scope="session")
def spark(python_of_workers: None, django_db_setup: None) -> Iterator[SparkSession]:
    """Of two cores; tasks are tried again. Verbs that run in this process use it, and leave it on.

    It ends before the database goes, to which its Python workers leave their connections open.
    """
    with session.opened("tests", master="local[2,4]", conf=CONF) as started:
        yield started
