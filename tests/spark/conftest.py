"""One Spark session a process, and few processes that have one.

A session takes seconds to start and a JVM's memory, so under xdist the files here are shared out
to `GROUPS` processes, which run nothing else before they are done.
"""

import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from pulljobs.spark import session

HERE: Final = Path(__file__).parent
GROUPS: Final = 2
CONF: Final = (
    ("spark.sql.shuffle.partitions", "2"),
    ("spark.default.parallelism", "2"),
    ("spark.driver.memory", "1g"),
)
# Spark puts a zip of pyspark on the path of its Python workers: without compiled modules, so each
# takes a second to start. Here they have the same pyspark installed.
PYTHON: Final = """#!/bin/bash
export PYTHONPATH={path}
exec {python} "$@"
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    files = sorted(HERE.rglob("test_*.py"))
    for item in items:
        if item.path in files:
            item.add_marker(pytest.mark.spark)
            item.add_marker(pytest.mark.xdist_group(f"spark{files.index(item.path) % GROUPS}"))


@pytest.fixture(scope="session")
def python_of_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    script = tmp_path_factory.mktemp("python") / "python"
    path = os.pathsep.join(filter(None, [str(HERE.parent.parent), os.environ.get("PYTHONPATH")]))
    text = PYTHON.format(path=shlex.quote(path), python=shlex.quote(sys.executable))
    script.write_text(text, "utf-8")
    script.chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(script))
        yield


@pytest.fixture(scope="session")
def spark(python_of_workers: None) -> Iterator[SparkSession]:
    """Of two cores. Verbs that run in this process use it, and leave it running."""
    with session.opened("tests", master="local[2]", conf=CONF) as started:
        yield started
