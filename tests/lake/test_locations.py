"""A lake is in a directory or in an object store, and a wrong URL leaves nothing behind."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core import checks
from django.core.management import CommandError
from django.test import override_settings
from pyspark.sql import SparkSession

from pulljobs.conf import WORKER_CHECKS
from pulljobs.engine import outcomes
from pulljobs.lake import locations
from pulljobs.lake.models import LakeRun, Rollup
from pulljobs.lake.spark import failures, session, tables
from pulljobs.storage import jobs
from tests.days import no_days
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake import object_store
from tests.lake.lakes import assert_same, files, lake_at, run
from tests.lake.object_store import StorePlace
from tests.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)
TODAY = datetime.now(UTC).date()


def settled(count: int) -> None:
    consumer = ConsumerFactory.create()
    published(consumer, count)
    held = claimed(consumer, count)
    jobs.finish(USING, [outcomes.deliver(job) for job in held[1:]])
    jobs.finish(USING, [outcomes.reject(held[0], "ValueError: no")])


@pytest.mark.parametrize(
    ("setting", "location"),
    [
        ("", ""),
        ("/srv/lake/", "/srv/lake"),
        ("file:///srv/my%20lake", "/srv/my lake"),
        ("FILE://localhost/srv/lake", "/srv/lake"),
        ("file:/srv/lake#1", "/srv/lake#1"),
        ("s3://bucket/lake/", "s3://bucket/lake"),
        ("s3a://bucket/lake", "s3://bucket/lake"),
        ("GS://bucket", "gs://bucket"),
        ("abfss://lake@account.dfs.core.windows.net/a", "abfss://lake@account.dfs.core.windows.net/a"),
        ("hdfs://name:8020/lake", "hdfs://name:8020/lake"),
    ],
)  # fmt: skip
def test_a_location_has_one_form(setting: str, location: str) -> None:
    assert locations.normalize_location(setting) == location


@pytest.mark.parametrize(
    "setting",
    [
        "s4://bucket/lake",
        "s3//bucket",
        "s3:/bucket",
        "s3://",
        "file://nas/lake",
        "file:lake",
        "~/a",
    ],
)
def test_a_wrong_scheme_is_one_clear_line_and_the_right_one_works_at_once(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settled(1)
    with override_settings(PULLJOBS={"LAKE": setting}):
        for verb in ("export", "verify"):
            with pytest.raises(CommandError, match="set it to a directory or to a URL such as s3:"):
                run(verb)
    assert list(tmp_path.iterdir()) == []
    with lake_at(tmp_path / "lake"):
        assert run("export")["rows"] == {"archive": 1, "messages": 1}


def test_a_wrong_scheme_is_reported_by_the_check_of_django() -> None:
    with override_settings(PULLJOBS={"LAKE": "s4://bucket/lake"}):
        [problem] = checks.run_checks(tags=[WORKER_CHECKS])
    assert (problem.id, problem.msg[:19]) == ("pulljobs.E038", "PULLJOBS['LAKE'] is")
    for right in ("", "s3a://bucket/lake", "/srv/lake"):
        with override_settings(PULLJOBS={"LAKE": right}):
            assert checks.run_checks(tags=[WORKER_CHECKS]) == []


@pytest.mark.parametrize("character", [*tables.PATTERNS, "%20", "\n"])
def test_a_path_that_spark_or_delta_takes_as_a_pattern_is_one_clear_line(
    tmp_path: Path, character: str
) -> None:
    """A path that Spark or Delta would take as a pattern is refused before anything is written."""
    settled(1)
    with (
        override_settings(PULLJOBS={"LAKE": str(tmp_path / f"my{character}lake")}),
        pytest.raises(CommandError, match=r"^PULLJOBS\['LAKE'\] is .*: choose a path without "),
    ):
        run("export")
    assert list(tmp_path.iterdir()) == []


def test_a_path_with_spaces_and_other_signs_keeps_a_lake(tmp_path: Path) -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 2)
    jobs.finish(USING, [outcomes.deliver(job) for job in claimed(consumer, 2)])
    with lake_at(tmp_path / "mein läke #2, 50% (a:b)"):
        run("export")
        assert run("erase", "--where", "true")["messages"] == 2
        assert run("verify")["equal"]


def test_credentials_reach_executors_and_plain_http_needs_a_named_server() -> None:
    given = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9000", "AWS_SECRET_ACCESS_KEY": "k", "HOME": "/"}
    assert locations.choose_storage_options("s3://b/l", given)["allow_http"] == "true"
    assert "allow_http" not in locations.choose_storage_options("s3://b/l", {"HOME": "/"})
    assert locations.choose_storage_options("/srv/lake", given) == {}
    assert locations.select_credentials(given).keys() == given.keys() - {"HOME"}
    assert locations.choose_hadoop_options({"AWS_REGION": "eu", "HOME": "/"}) == {
        "fs.s3a.endpoint.region": "eu"
    }


def wrong_bucket(place: Path) -> str:
    return "s3a://nosuch/lake"


def wrong_directory(place: Path) -> str:
    place.touch()
    return f"{place}/lake"


@pytest.mark.parametrize(
    ("wrong", "verbs", "reason"),
    [
        (wrong_bucket, ("export", "verify", "rollup", "export"), "NoSuchBucket"),
        (wrong_directory, ("export", "export"), "Not a directory|File exists"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("store")
def test_a_wrong_url_is_one_clear_line_and_the_right_one_works_at_once(
    wrong: Callable[[Path], str], verbs: Sequence[str], reason: str, tmp_path: Path
) -> None:
    settled(2)
    with override_settings(PULLJOBS={"LAKE": wrong(tmp_path / "file")}):
        for verb in verbs:
            with pytest.raises(CommandError, match=reason) as failed:
                run(verb)
            assert "\n" not in str(failed.value)
    assert not LakeRun.objects.exists()
    with lake_at(tmp_path / "lake") as place:
        assert run("export")["rows"] == {"archive": 2, "messages": 2}
        assert_same(place)


@pytest.mark.parametrize(
    ("lake", "variable", "wrong", "reason"),
    [
        ("abfss://c@a.dfs.core.windows.net/lake", "AZURE_STORAGE_ACCOUNT_KEY", "typo!",
         "Invalid Access Key: "),
        ("gs://bucket/lake", "GOOGLE_APPLICATION_CREDENTIALS", "/no/such.json",
         "Unable to open service account file from /no/such.json: No such file"),
    ],
)  # fmt: skip
def test_wrong_credentials_are_named(
    lake: str, variable: str, wrong: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, wrong)
    settled(1)
    with override_settings(PULLJOBS={"LAKE": lake}), pytest.raises(CommandError, match=reason):
        run("export")


@pytest.mark.parametrize("login", ["", "user:secret@"])
def test_a_store_that_does_not_answer_is_named_without_the_secrets_of_its_url(login: str) -> None:
    error = OSError(
        "Generic MicrosoftAzure error\n  \x1b[31m↳\x1b[0m Error performing GET "
        f"https://{login}a.blob.core.windows.net/c/_last_checkpoint?sig=secret in 103.8ms, after 3 "
        "retries\n   \x1b[31m↳\x1b[0m error sending request\n"
        "    \x1b[31m↳\x1b[0m Connection refused\n"
    )
    assert failures.summarize_store_error(error) == (
        "GET https://a.blob.core.windows.net/c/_last_checkpoint: Connection refused"
    )


def test_no_step_of_an_error_of_a_store_shows_secrets() -> None:
    """The last step may have the URL, too. The container of an Azure lake is no secret."""
    error = OSError("Error performing GET https://user:secret@a.net/c?sig=secret in 1s - Refused")
    assert "secret" not in failures.summarize_store_error(error)
    answer = OSError("<?xml version='1.0'?><Error><Code>No</Code><Message>Access denied</Message>")
    assert failures.summarize_store_error(answer) == "No: Access denied"
    lake = "abfss://container@account.dfs.core.windows.net/lake"
    assert failures.summarize_store_error(OSError(f"No lake {lake}")) == f"No lake {lake}"


def test_a_run_that_is_open_elsewhere_blocks_no_other_lake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(1)
    with monkeypatch.context() as patch, lake_at(tmp_path / "broken"):
        patch.setattr("pulljobs.lake.spark.tables.Table.commit", None)
        with pytest.raises(TypeError):
            run("export")
    assert LakeRun.objects.filter(state="open").count() == 1
    with lake_at(tmp_path / "lake") as place:
        assert run("export")["rows"] == {"archive": 1, "messages": 1}
        assert_same(place)


@contextmanager
def wrong_key(port: int) -> Iterator[None]:
    object_store.request("POST", "/moto-api/reset-auth", port, b"0")
    try:
        yield
    finally:
        object_store.request("POST", "/moto-api/reset-auth", port, b"inf")


def test_a_wrong_key_is_one_clear_line_and_the_right_one_works_at_once(store: int) -> None:
    settled(1)
    with lake_at(StorePlace("s3")) as place:
        reason = pytest.raises(CommandError, match=r"^[^\n]*InvalidAccessKeyId[^\n]*$")
        with wrong_key(store), reason:
            run("export")
        assert not LakeRun.objects.exists()
        assert run("export")["rows"] == {"archive": 1, "messages": 1}
        assert_same(place)


@pytest.mark.usefixtures("store")
@pytest.mark.owner
def test_a_lake_in_a_bucket_is_read_by_spark_without_a_jar(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    context, wanted = spark.sparkContext, ["fs.s3a.endpoint", "fs.s3a.path.style.access"]
    of_hadoop = context._jsc.hadoopConfiguration()  # for users who add Hadoop's filesystem
    assert [of_hadoop.get(name) for name in wanted] == [os.environ["AWS_ENDPOINT_URL"], "true"]
    settled(20)
    monkeypatch.setattr(session, "SMALL_ROWS", 0)  # else this process verifies it
    with lake_at(StorePlace("s3a")) as place:
        run("export", "--master", "local[2,4]")
        assert_same(place)
        assert run("rollup")["settlements"] == 20  # by this process
        assert run("verify")["equal"]
    assert Rollup.objects.filter(period="hour", dead=1).exists()


@pytest.mark.usefixtures("store")
@pytest.mark.owner
def test_a_lake_in_a_bucket_is_compacted_erased_and_restored() -> None:
    with no_days(), lake_at(StorePlace("s3")) as place:
        for _ in range(2):
            settled(3)
            run("export", "--with-payload")
        assert {table["files_after"] for table in run("compact").values()} == {1}
        query("DELETE FROM pulljobs_job")  # Those that are dead still need their messages.
        assert run("erase", "--where", "priority = 0")["messages"] == 6
        assert len(files(place, "messages")) == len(list(place.glob("messages/day=*/*"))) == 1
        assert_same(place)
        query("DELETE FROM pulljobs_archived_job; DELETE FROM pulljobs_message")
        assert run("restore", "--day", str(TODAY))["rows"] == {"archive": 6, "messages": 6}
        assert_same(place)


def test_the_reason_of_a_java_error_is_the_line() -> None:
    text = (
        "An error occurred while calling o67.parquet.\n"
        ': org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3a"\n'
        "\tat org.apache.hadoop.fs.FileSystem.getFileSystemClass(FileSystem.java:3581)\n"
    )
    reason = 'Spark: No FileSystem for scheme "s3a" (UnsupportedFileSystemException)'
    assert failures.summarize_error(Exception(text)) == reason
    nested = f"{text}Caused by: java.io.IOException: No space left on device\n\tat x\n"
    assert "No space left" in failures.summarize_error(Exception(nested))
