"""Spark's JVM, with properties that nobody else on this machine reads.

PySpark makes arguments of what a JVM that is yet to start is configured with, and arguments are
what `ps` shows to every user, for as long as it runs. Passwords are among them: they go by a file
of this user's, which is gone when the JVM is there.
"""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from typing import Final

ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"


def start(properties: Mapping[str, str]) -> None:
    """Where none runs yet: with what it takes at its start, as its memory and its options."""
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
    """Before those that the environment has."""
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
    """For a file of Java's properties, where spaces, backslashes and a few signs mean something."""
    units = text.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)
