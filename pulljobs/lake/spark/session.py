"""Spark sessions with a Java, this Python, the password of the database and the data source."""

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.lake import locations
from pulljobs.lake.spark import failures, home, java, jvm, remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK: Final = (4, 3)
REQUIRED: Final = ("pyspark", "pyarrow", "pandas", "adbc-driver-postgresql")
INSTALL: Final = "python -m pip install 'pulljobs[spark,lake,java]'"
LOGGING: Final = Path(__file__).with_name("log4j2.properties")
SMALL_ROWS: Final = 200_000
"""Number of rows below which the start of a query takes longer than the query."""
ONE_PROCESS_ROWS: Final = 2_000_000
"""Number of rows that one process exports in less time than a session starts."""
PARTITION_ROWS: Final = 1_000_000
"""Number of rows for which a query gets one more partition."""
JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
QUICK_JAVA: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a JVM that ends before its optimizing compiler would pay off."""
DEFAULTS: Final = {
    "spark.master": "local[*,4]",  # four attempts for each task
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # The UI is off, and the plans of a stream's batches would be most of the heap.
    "spark.ui.retainedJobs": "50",
    "spark.ui.retainedStages": "50",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.sql.streaming.ui.retainedQueries": "5",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    JAVA_OPTIONS: f"-Dlog4j2.configurationFile={LOGGING.as_uri()}",
    "spark.python.daemon.module": "pulljobs.lake.spark.daemon",
    "spark.sql.session.timeZone": "UTC",
    # From so many files on their sizes are read by tasks; below, a task costs more than its files.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "1000",
    # Two more files for each batch of a stream, next to those that the filesystem itself checks.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Without Hadoop's native library the other manager starts programs such as `readlink` for each
    # file: a tenth of a second for each batch of a stream. The stream has one writer in any case.
    "spark.sql.streaming.checkpointFileManagerClass": "org.apache.spark.sql.execution.streaming."
    "checkpointing.FileSystemBasedCheckpointFileManager",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
}
MASTERS: Final = re.compile(
    r"local(\[(\*|[1-9]\d*)(\s*,\s*[1-9]\d*)?\])?"
    r"|local-cluster\[\s*[1-9]\d*\s*,\s*[1-9]\d*\s*,\s*[1-9]\d*\s*\]"
    r"|(spark|sc|k8s)://.+|yarn"
)
"""Forms of a master. Java would end without a reason for most others, or wait for ever."""
LOCAL: Final = ("local", "local[")
"""Spark masters on this machine alone. For others, Spark's driver must be reachable."""
LOCAL_PROPERTIES: Final = (
    "spark.driver.host", "spark.driver.bindAddress", "spark.python.daemon.",
    "spark.sql.streaming.checkpointFileManagerClass",
)  # fmt: skip
"""Prefixes of the properties whose defaults are for masters on this machine."""


@contextmanager
def open_session(
    name: str,
    *,
    master: str | None = None,
    conf: Iterable[tuple[str, str]] = (),
    rows: int | None = None,
    **_: Any,
) -> Iterator["SparkSession"]:
    """Provide a session with the data source `pulljobs`, and stop it unless it existed before.

    Of the defaults, PULLJOBS['SPARK'], `conf` and `master`, the last that sets a property wins.
    With few `rows` to process, the JVM is started so that it starts quickly and runs more slowly.
    Further arguments, such as the other options of a subcommand, are ignored. Errors of Spark
    inside the block are raised as LakeError with one line. Raise ConfigurationError if something is
    not installed, or if the master is not valid.
    """
    require()
    chosen = dict(conf)
    given = properties(master, chosen.items())
    _check_master(given["spark.master"])
    with failures.raising_lake_errors():
        if given["spark.master"].startswith(remote.SCHEME):
            _refuse_missing(remote.PACKAGES, remote.INSTALL)
            opened = remote.open_session(given["spark.master"], given, required=chosen)
        else:
            opened = _open_here(name, given, is_small=_is_small(rows))
        with opened as session:
            from pyspark_pulljobs import DefaultSource

            session.dataSource.register(DefaultSource)
            yield session


@contextmanager
def _open_here(name: str, given: dict[str, str], *, is_small: bool) -> Iterator["SparkSession"]:
    """Provide a session whose Spark driver is this process. Stop it unless it existed before."""
    from pyspark import SparkContext

    is_new = SparkContext._active_spark_context is None
    session = _start(name, given, is_small=is_small)
    try:
        yield session
    finally:
        if is_new:
            _stop(session)


def count_cores(session: "SparkSession") -> int:
    """Return the number of tasks that run at once, on all executors."""
    if remote.is_remote(session):
        return remote.count_cores(session)
    return session.sparkContext.defaultParallelism


def keep_session(
    opened: Callable[..., AbstractContextManager["SparkSession"]], stack: ExitStack
) -> Callable[..., AbstractContextManager["SparkSession"]]:
    """Return a function that opens a session at its first call, and provides it again later.

    The session is stopped when the stack ends, or when a block that uses it fails. After a failure,
    the next call opens another. Only the arguments of a call that opens a session count, such as
    the number of rows.
    """
    sessions: list[SparkSession] = []

    @contextmanager
    def kept(**hints: int) -> Iterator["SparkSession"]:
        if not sessions:
            sessions.append(stack.enter_context(opened(**hints)))
        try:
            with failures.raising_lake_errors():
                yield sessions[0]
        except Exception:
            sessions.clear()
            stack.close()
            raise

    return kept


def require() -> None:
    """Raise ConfigurationError unless a supported Spark and the needed libraries are installed."""
    _refuse_missing(REQUIRED)
    installed = _find_version("pyspark") or ""
    if tuple(installed.split(".")[:2]) != tuple(map(str, SPARK)):
        wanted = ".".join(map(str, SPARK))
        raise ConfigurationError(f"Spark {wanted} is needed, {installed} is installed. {INSTALL}")


def require_lake() -> None:
    """Raise ConfigurationError unless the Delta library is installed."""
    _refuse_missing(["deltalake"])


def has_master(master: str | None = None) -> bool:
    """Return True if the caller or PULLJOBS['SPARK'] names a master, where Spark runs."""
    return bool(master) or "spark.master" in settings().SPARK


def properties(master: str | None, conf: Iterable[tuple[str, str]] = ()) -> dict[str, str]:
    """Return the properties of a session, with the database password for the executors."""
    given = {**DEFAULTS, **settings().SPARK, **dict(conf)}
    if master:
        given["spark.master"] = master
    if not given["spark.master"].startswith(LOCAL):
        given = {name: value for name, value in given.items() if not _only_local(name, value)}
        for variable, value in locations.select_credentials(os.environ).items():
            given.setdefault(f"spark.executorEnv.{variable}", value)
    for name, value in locations.choose_hadoop_options(os.environ).items():
        given.setdefault(f"spark.hadoop.{name}", value)
    if password := _parameters().get("password"):
        given["spark.executorEnv.PGPASSWORD"] = str(password)
    return given


def dsn(using: str = "") -> str:
    """Return the connection string of a database, by default that of the jobs, without secrets."""
    from pyspark_pulljobs.connecting import SECRETS

    public = conninfo_keywords() - SECRETS
    return make_conninfo(
        "",
        **{
            name: value
            for name, value in _parameters(using).items()
            if name in public and value not in (None, "")
        },
    )


def tune(session: "SparkSession", rows: int) -> None:
    """Set properties of Spark for later queries over `rows` rows, unless the user chose them.

    For few rows, compiling a query takes longer than running it, and each partition costs a task.
    Nothing is set in sessions of a Spark Connect server.
    """
    if remote.is_remote(session):
        return
    is_small = _is_small(rows)
    cores = session.sparkContext.defaultParallelism
    properties = {
        "spark.sql.shuffle.partitions": 1 if is_small else max(2 * cores, rows // PARTITION_ROWS),
        "spark.sql.adaptive.enabled": str(not is_small).lower(),
        "spark.sql.codegen.wholeStage": str(not is_small).lower(),
        "spark.sql.codegen.factoryMode": "NO_CODEGEN" if is_small else "FALLBACK",
    }
    given = session.sparkContext.getConf()
    for name, value in properties.items():
        if not given.contains(name):
            session.conf.set(name, str(value))


def _is_small(rows: int | None) -> bool:
    return rows is not None and rows < SMALL_ROWS


def share_password() -> None:
    """Put the database password into PGPASSWORD, for libpq in tasks and child processes."""
    if password := _parameters().get("password"):
        os.environ["PGPASSWORD"] = str(password)


def conninfo_keywords() -> frozenset[str]:
    """Return the names of libpq's connection parameters, without those that psycopg adds."""
    from psycopg import pq

    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())


def _start(name: str, given: dict[str, str], *, is_small: bool) -> "SparkSession":
    from pyspark.sql import SparkSession

    java.use(os.environ)
    if is_small and given.get(JAVA_OPTIONS) == DEFAULTS[JAVA_OPTIONS]:
        given[JAVA_OPTIONS] = " ".join([given[JAVA_OPTIONS], *QUICK_JAVA])
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if given["spark.master"].startswith(LOCAL):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns of the host's name
        home.use(os.environ)
    share_password()
    jvm.start(given)
    builder = SparkSession.builder.appName(f"pulljobs {name}")
    for key, value in given.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _stop(session: "SparkSession") -> None:
    """Stop a session, even if its JVM has died, so that the next session can start a new JVM."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    try:
        session.stop()
    except (Py4JError, OSError):
        session.sparkContext.stop()  # the Python part
        SparkContext._gateway = SparkContext._jvm = None
        SparkSession._instantiatedSession = SparkSession._activeSession = None


def _parameters(using: str = "") -> dict[str, Any]:
    parameters = connections[using or settings().DATABASE].get_connection_params()
    # A DSN in place of the name, as DATABASES may have it.
    dbname = str(parameters.get("dbname") or "")
    if "=" in dbname or "://" in dbname:
        parameters = {**parameters, **conninfo_to_dict(dbname)}
    return dict(parameters)


def _only_local(name: str, value: str) -> bool:
    return name.startswith(LOCAL_PROPERTIES) and DEFAULTS.get(name) == value


def _check_master(master: str) -> None:
    """Raise ConfigurationError if the master has no valid form, or if no cluster listens there."""
    if not MASTERS.fullmatch(master):
        raise ConfigurationError(
            f"There is no Spark master {master!r}: use one like local[4], local-cluster[2,1,1024], "
            "spark://host:7077, k8s://https://host:443, yarn or sc://host:15002."
        )
    if master.startswith(remote.STANDALONE):
        remote.check_master(master)


def _refuse_missing(names: Iterable[str], install: str = INSTALL) -> None:
    if missing := [name for name in names if _find_version(name) is None]:
        raise ConfigurationError(f"Not installed: {', '.join(missing)}. {install}")


def _find_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
