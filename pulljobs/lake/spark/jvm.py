"""Start of Spark's JVM with properties that other users of this machine cannot read.

PySpark passes the configuration of a new JVM as arguments, which `ps` shows to every user while it
runs. Passwords are among them: they go through a file of this user, which is removed once the JVM
has started.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Final

ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


def start(properties: Mapping[str, str]) -> None:
    """Start the JVM, unless it runs, with properties such as its memory and options."""
    from pyspark import SparkContext

    if SparkContext._gateway:
        return
    with NamedTemporaryFile("w", encoding="ascii", prefix="pulljobs-", suffix=".conf") as file:
        for name, value in properties.items():
            file.write(f"{_escaped(name)}={_escaped(str(value))}\n")  # settings may have numbers
        file.flush()
        with _submitted(f"--load-spark-defaults --properties-file {shlex.quote(file.name)}"):
            SparkContext._ensure_initialized()


@contextmanager
def _submitted(arguments: str) -> Iterator[None]:
    """Put arguments before those of the environment."""
    before = os.environ.get(ARGUMENTS)
    os.environ[ARGUMENTS] = f"{arguments} {before or 'pyspark-shell'}"
    try:
        yield
    finally:
        if before is None:
            del os.environ[ARGUMENTS]
        else:
            os.environ[ARGUMENTS] = before


def _escaped(text: str) -> str:
    """Escape text for a Java properties file, where spaces and backslashes have meanings."""
    units = text.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)
