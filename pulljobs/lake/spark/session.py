"""A Spark session whose parts have what they need: Java, this Python, the password, our source."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.lake.spark import failures, java, jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = (4, 3)
NEEDED: Final = ("pyspark", "pyarrow", "pandas", "adbc-driver-postgresql")
INSTALL: Final = "python -m pip install 'pulljobs[spark,lake,java]'"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
DEFAULTS: Final = {
    "spark.master": "local[*,4]",  # a task may fail so often
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Kept for a UI that nobody opens; the plans of a stream's batches would be most of the heap.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.streaming.ui.retainedQueries": "5",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.python.daemon.module": "pulljobs.lake.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
LOCAL: Final = ("local", "local[")
"""Masters that need nothing but this machine; for others the driver must be reachable."""


@contextmanager
def opened(
    name: str, *, master: str | None = None, conf: Iterable[tuple[str, str]] = (), **_: Any
) -> Iterator["SparkSession"]:
    """A session, stopped at the end unless there was one before; takes the options of a verb.

    Properties are ours, then PULLJOBS['SPARK'], then `conf`, then `master`. What fails inside, in
    Spark, is raised as a LakeError of one line.
    """
    require()
    from pyspark import SparkContext

    with failures.told():
        ours = SparkContext._active_spark_context is None
        session = _started(name, properties(master, conf))
        try:
            yield session
        finally:
            if ours:
                _stop(session)


def require() -> None:
    """Raise ConfigurationError unless the right Spark is installed, with all it needs."""
    missing = [name for name in NEEDED if _version(name) is None]
    if missing:
        raise ConfigurationError(f"Not installed: {', '.join(missing)}. {INSTALL}")
    found = _version("pyspark") or ""
    if tuple(found.split(".")[:2]) != tuple(map(str, SPARK)):
        wanted = ".".join(map(str, SPARK))
        raise ConfigurationError(f"Spark {wanted} is needed, {found} is installed. {INSTALL}")


def properties(master: str | None, conf: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """What the session is configured with, the password of executors among it."""
    given = {**DEFAULTS, **settings().SPARK, **dict(conf)}
    if master:
        given["spark.master"] = master
    if not given["spark.master"].startswith(LOCAL):
        given = {name: value for name, value in given.items() if not _only_local(name, value)}
    if password := _parameters().get("password"):
        given["spark.executorEnv.PGPASSWORD"] = str(password)
    return given


def dsn() -> str:
    """Where the jobs are, for options of the source: without the password or another secret."""
    from pyspark_pulljobs.connecting import SECRETS

    told = conninfo_keywords() - SECRETS
    return make_conninfo(
        "",
        **{
            name: value
            for name, value in _parameters().items()
            if name in told and value not in (None, "")
        },
    )


def share_password() -> None:
    """With what this process starts or is: libpq looks for it in the environment."""
    if password := _parameters().get("password"):
        os.environ["PGPASSWORD"] = str(password)


def conninfo_keywords() -> frozenset[str]:
    """What libpq understands; Django passes psycopg's own parameters along with them."""
    from psycopg import pq

    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())


def _started(name: str, given: Mapping[str, str]) -> "SparkSession":
    from pyspark.sql import SparkSession

    from pyspark_pulljobs import DefaultSource

    java.use(os.environ)
    if given["spark.master"].startswith(LOCAL):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns of the host's name
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    share_password()
    jvm.start(given)
    builder = SparkSession.builder.appName(f"pulljobs {name}")
    for key, value in given.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.dataSource.register(DefaultSource)
    return session


def _stop(session: "SparkSession") -> None:
    """Also one whose JVM has died, so that the next one starts another."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        session.stop()
    except (Py4JError, OSError):
        session.sparkContext.stop()  # what is left of it here
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _parameters() -> dict[str, Any]:
    parameters = connections[settings().DATABASE].get_connection_params()
    # A DSN in the place of the name, as DATABASES may have it.
    dbname = str(parameters.get("dbname") or "")
    if "=" in dbname or "://" in dbname:
        parameters = {**parameters, **conninfo_to_dict(dbname)}
    return dict(parameters)


def _only_local(name: str, value: str) -> bool:
    of_here = name.startswith(("spark.driver.", "spark.python.daemon."))
    return of_here and DEFAULTS.get(name) == value


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
