"""Start of Spark's JVM with properties that other users of this machine cannot read.

PySpark passes the configuration of a new JVM as arguments, which `ps` shows to every user while it
runs. Passwords are among the properties. So they go through a file that only this user can read,
and which is removed once the JVM has started.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from pulljobs.lake.spark import remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
"""Variable from which PySpark takes the arguments of a new JVM."""

USUAL: Final = (
    "WARNING: Using incubator modules:",
    "Setting default log level to ",
    "To adjust logging level use ",
    "Warning: Java versions > Java 11 can only operate in restricted mode",
)
"""Beginnings of the lines that Java and Spark print in every session."""

HADOOP_SCHEMES: Final = {"s3": "s3a"}
"""Names that Hadoop's filesystems have for schemes of the lake."""
HADOOP_PACKAGES: Final = {
    "s3": "org.apache.hadoop:hadoop-aws",
    "s3a": "org.apache.hadoop:hadoop-aws",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "abfss": "org.apache.hadoop:hadoop-azure",
}
"""Packages with the filesystems of object stores, which Spark as installed by pip lacks."""


def find_url(spark: "SparkSession", location: str) -> str | None:
    """Return the location as the URL or path for Spark's JVM, or None if the JVM cannot read it.

    The JVM cannot read a URL if it has no filesystem for the scheme. The JVM of a Spark Connect
    server cannot be asked for its filesystems, so the result is None for any URL.
    """
    if "://" not in location:
        return location
    if remote.is_remote(spark):
        return None
    from py4j.protocol import Py4JError

    url = name_url(location)
    context = spark.sparkContext
    assert context._jvm is not None
    try:
        context._jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(
            url.partition("://")[0], context._jsc.hadoopConfiguration()
        )
    except Py4JError:  # UnsupportedFileSystemException
        return None
    return url


def name_url(location: str) -> str:
    """Return the URL with the scheme that Hadoop's filesystem has for it, or a path unchanged."""
    scheme, separator, rest = location.partition("://")
    return f"{HADOOP_SCHEMES.get(scheme, scheme)}{separator}{rest}"


def start(properties: Mapping[str, str]) -> None:
    """Start the JVM with these properties, unless this process has a JVM.

    It is in a process group of its own, so that a SIGTERM to the group of this process does not end
    the JVM before this process has stopped its query. The JVM ends with this process.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway:
        return
    with NamedTemporaryFile("w", encoding="ascii", prefix="pulljobs-", suffix=".conf") as file:
        for name, value in properties.items():
            file.write(f"{_escaped(name)}={_escaped(str(value))}\n")  # settings may have numbers
        file.flush()
        arguments = f"--load-spark-defaults --properties-file {shlex.quote(file.name)}"
        with _submitted(arguments), _relaying() as output:
            launch: Callable[..., Any] = launch_gateway  # Spark declares no types for it
            streams = {"stdout": output, "stderr": output}
            gateway = launch(popen_kwargs={"start_new_session": True, **streams})
            SparkContext._ensure_initialized(gateway=gateway)


@contextmanager
def _relaying() -> Iterator[int]:
    """Provide the write end of a pipe, from which a thread copies lines to standard error.

    It leaves out the lines that the JVM writes in every session, and ends with the last process
    that writes to the pipe.
    """
    reading, writing = os.pipe()
    Thread(target=_relay, args=[reading], name="java output", daemon=True).start()
    try:
        yield writing
    finally:
        os.close(writing)


def _relay(reading: int) -> None:
    with open(reading, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.startswith(USUAL):
                sys.stderr.write(line)


@contextmanager
def _submitted(arguments: str) -> Iterator[None]:
    """Put these arguments in front of those in `PYSPARK_SUBMIT_ARGS` while the block runs."""
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
    r"""Return the text in the escapes of a Java properties file, every character as `\uXXXX`."""
    units = text.encode("utf-16-be", "surrogatepass").hex(" ", 2).split()
    return "".join(f"\\u{unit}" for unit in units)
