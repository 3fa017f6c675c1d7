"""Sessions of a Spark Connect server, which runs Spark's JVM and the tasks elsewhere.

Such a session has no SparkContext. The server's Python needs this wheel, and the server's
environment the password of the database and the credentials of the lake.
"""

import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pulljobs.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEME: Final = "sc://"
PORT: Final = 15002
STANDALONE: Final = "spark://"
MASTER_PORT: Final = 7077
PACKAGES: Final = ("grpcio", "grpcio-status", "googleapis-common-protos", "zstandard")
INSTALL: Final = "python -m pip install 'pulljobs[spark,lake,connect]'"
CONNECT_SECONDS: Final = 10.0
OWN_MODE: Final = "SPARK_CONNECT_MODE_ENABLED"
"""Variable with which PySpark's functions build expressions for a server."""


def is_remote(spark: "SparkSession | StreamingQuery") -> bool:
    """Return True for a session of Spark Connect, and for a query of such a session."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


@contextmanager
def open_session(
    url: str, properties: Mapping[str, str], required: Collection[str]
) -> Iterator["SparkSession"]:
    """Open a session of the server at a URL, with those properties that a client can set.

    Raise ConfigurationError if there is no server, or if a client cannot set a property in
    `required`.
    """
    _check_server(url)
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(url).create()
    try:
        _configure(session, properties, required)
        yield session
    finally:
        session.stop()
        os.environ.pop(OWN_MODE, None)


def count_cores(spark: "SparkSession") -> int:
    """Return the number of tasks that run at once, by the server's default parallelism."""
    from pyspark.sql.functions import spark_partition_id

    partitions = spark.range(10_000).select(spark_partition_id()).distinct()
    return max(partitions.count(), 1)


def _configure(
    session: "SparkSession", properties: Mapping[str, str], required: Collection[str]
) -> None:
    for name, value in properties.items():
        if name.startswith("spark.sql.") and session.conf.isModifiable(name):
            session.conf.set(name, value)
        elif name in required:
            raise ConfigurationError(
                f"A client of Spark Connect cannot set {name}: set it where the server starts."
            )


def _check_server(url: str) -> None:
    """Raise ConfigurationError if nothing listens at the URL.

    Spark's own client would try for ten minutes.
    """
    if error := _find_connect_error(url, PORT):
        raise ConfigurationError(
            f"There is no Spark Connect server at {url} ({error}): start it, or correct the URL."
        ) from error


def check_master(url: str) -> None:
    """Raise ConfigurationError if no master of a standalone cluster listens at the URL.

    The URL may name standby masters, as in `spark://a:7077,b:7077`. Spark would try all of them for
    a minute and print a stack trace each time.
    """
    hosts = url.removeprefix(STANDALONE).split(",")
    errors = [_find_connect_error(f"{STANDALONE}{host}", MASTER_PORT) for host in hosts]
    if all(errors):
        raise ConfigurationError(
            f"There is no Spark master at {url} ({errors[0]}): start it, or correct the URL."
        )


def _find_connect_error(url: str, default_port: int) -> Exception | None:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or default_port
        with socket.create_connection((host, port), CONNECT_SECONDS):
            return None
    except (OSError, ValueError) as error:
        return error
