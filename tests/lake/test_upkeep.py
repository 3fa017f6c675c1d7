"""Upkeep compacts small files and deletes old ones, and erased contents are in no file."""

from collections.abc import Collection, Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from django.core.management import CommandError
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.engine import outcomes
from pulljobs.lake.models import ErrorFingerprint, HotKey, LakeDay, Rollup
from pulljobs.lake.rollups import rollup_erasing
from pulljobs.lake.spark import erasing, tables
from pulljobs.lake.spark.tables import Table
from pulljobs.models import ArchivedJob, Channel, Consumer, JobProgress, Message, ScheduledMessage
from pulljobs.publishing import publish
from pulljobs.scheduling import dispatch
from pulljobs.storage import jobs
from pyspark_pulljobs.schemas import TABLES
from tests.days import no_days
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake.lakes import Place, assert_same, delta, files, lakes, run
from tests.lake.test_retention import OLD, settled_on, verified
from tests.sessions import query

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
KEY = "customer-17-secret"
EXPORTS = 6


@pytest.fixture(autouse=True)
def place(place: Place) -> Iterator[Place]:
    with no_days():
        yield place


def test_an_export_adds_the_columns_that_an_older_release_did_not_know(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        known = [field for field in TABLES["archive"] if field.name != "result"]
        older.setitem(TABLES, "archive", pa.schema(known))
        older.setattr(tables, "DESCRIPTION", "pulljobs, schema 0")
        Table(str(place), "archive").create()
    consumer = ConsumerFactory.create()
    published(consumer)
    jobs.finish(USING, [outcomes.deliver(held, '{"n": 1}') for held in claimed(consumer, 1)])
    run("export")
    table = delta(place, "archive")
    [result] = table.to_pyarrow_table(columns=["result"])["result"].to_pylist()
    assert (result, table.metadata().description) == ('{"n": 1}', tables.DESCRIPTION)
    assert_same(place)


def names(place: Place, table: str) -> set[str]:
    return {path.name for path in place.glob(f"{table}/day=*/*.parquet")}


def test_many_exports_of_one_row_become_one_file_a_day(
    place: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pulljobs.progress.LINE_SECONDS", 0.0)
    consumer = ConsumerFactory.create()
    settled_on(OLD, consumer, 3)
    run("export")
    for _ in range(EXPORTS):
        publish(consumer.channel.name, b"x")
        jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer)])
        run("export")
    before = lakes(place, "archive")
    assert len(files(place, "archive")) == EXPORTS + 1
    archive = run("compact")["archive"]
    assert (archive["files_before"], archive["files_after"]) == (EXPORTS + 1, 2)
    assert lakes(place, "archive") == before
    assert len(names(place, "archive")) == EXPORTS + 2
    assert run("vacuum", "--older-than", "1") == {"archive": 0, "messages": 0}
    assert run("vacuum", "--older-than", "0") == {"archive": EXPORTS, "messages": EXPORTS}
    assert names(place, "archive") == {path.rpartition("/")[2] for path in files(place, "archive")}
    assert {table["days"] for table in run("compact").values()} == {0}
    assert run("export")["runs"] == []
    assert_same(place)
    shown = set(capsys.readouterr().err.splitlines())
    titles = {line.partition(",")[0] for line in shown}
    assert titles >= {
        "export: 1 of 2 slices",
        "compact archive: 1 of 1 days",
        "vacuum: 1 of 2 tables",
    }


def secret(consumer: Consumer, *payloads: bytes) -> list[int]:
    """Publish messages with the key KEY, and retry and reject their jobs with errors that quote it.

    The jobs are then deleted. Return the ids of all messages of the key, ascending.
    """
    for payload in payloads:
        publish(consumer.channel.name, payload, key=KEY, headers={"of": KEY})
    for held in claimed(consumer, 9):
        JobProgress.objects.create(job_id=held.job_id, done=1, note=KEY, reported_at=Now())
        jobs.finish(USING, [outcomes.retry(held, f"no {KEY}", after=timedelta())])
    jobs.finish(USING, [outcomes.reject(held, f"no {KEY}") for held in claimed(consumer, 9)])
    query("DELETE FROM pulljobs_job")
    return list(Message.objects.filter(key=KEY).order_by("pk").values_list("pk", flat=True))


def rolled_up(consumer: Consumer, message_id: int) -> None:
    """Make a rollup whose hot keys and errors have the text KEY."""
    [(job_id,)] = query(
        "SELECT job_id FROM pulljobs_archived_job WHERE message_id = %s", [message_id]
    )
    hour = ids.time_of(message_id).replace(minute=0, second=0, microsecond=0)
    rollup = Rollup.objects.create(
        period="hour", starts_at=hour, consumer=consumer, keys_sketch=KEY.encode()
    )
    HotKey.objects.create(rollup=rollup, rank=1, key=KEY, jobs=1)
    ErrorFingerprint.objects.create(
        rollup=rollup, fingerprint="f", reason="rejected", jobs=1, sample=KEY, sample_job=job_id
    )


def found_in(place: Place, text: str) -> list[str]:
    """Return the names of files that contain a text. Parquet stores short texts unchanged."""
    everything = [*place.glob("*/*"), *place.glob("*/*/*")]
    paths = [path for path in everything if not isinstance(path, Path) or path.is_file()]
    return [path.name for path in paths if text.encode() in path.read_bytes()]


@pytest.mark.parametrize("by", ["key", "message", "where"])
def test_no_byte_of_an_erased_message_is_left_and_every_row_is_accounted_for(
    place: Place, by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pulljobs.progress.LINE_SECONDS", 0.0)
    consumer = ConsumerFactory.create()
    publish(consumer.channel.name, b"PUBLIC")
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer)])
    [first] = secret(consumer, b"SECRET")
    rolled_up(consumer, first)
    run("export", "--with-payload")
    assert lakes(place, "messages")[0] == 2
    later = secret(consumer, b"SECRET", b"SECRET")[1:] if by == "key" else []
    verified(ids.time_of(first).date(), place)
    flags = {"key": KEY, "message": ids.encode(first), "where": f"key = '{KEY}'"}
    erased = run("erase", f"--{by}", flags[by])
    assert (erased["messages"], erased["settlements"]) == (1 + len(later), 1 + len(later))
    assert LakeDay.objects.count() == 0, "workers may not drop a day before another verification"
    assert found_in(place, "SECRET") == found_in(place, KEY) == []
    assert found_in(place, "PUBLIC")
    emptied = ("message", "archived_job", "attempt", "publication", "progress")
    for table in (f"pulljobs_{name}" for name in emptied):
        assert query(f"SELECT t FROM {table} AS t WHERE t::text LIKE %s", [f"%{KEY}%"]) == []
    assert HotKey.objects.count() == Rollup.objects.exclude(keys_sketch=None).count() == 0
    assert ErrorFingerprint.objects.get().sample == ""
    assert "erase from messages: 1 of 1 days" in capsys.readouterr().err
    run("export", "--with-payload")
    assert_same(place)


@pytest.mark.parametrize("by", ["key", "message"])
@pytest.mark.parametrize("is_dropped", [False, True], ids=["kept", "dropped"])
def test_a_message_that_was_scheduled_is_erased_with_its_copy(
    place: Place, by: str, is_dropped: bool
) -> None:
    """The copy goes even if only the lake still has the message. Copies of others stay."""
    consumer, other = ConsumerFactory.create(), ConsumerFactory.create()
    for channel, name in ((consumer.channel, "m"), (other.channel, "m"), (consumer.channel, "n")):
        add_scheduled(channel, name, key=KEY if channel == consumer.channel else None)
    dispatch()
    add_scheduled(consumer.channel, "later", key=KEY)
    query("DELETE FROM pulljobs_job")
    run("export", "--with-payload")
    chosen = Message.objects.get(channel=consumer.channel, client_message_id="m").pk
    if is_dropped:
        query("DELETE FROM pulljobs_message")
    run("erase", f"--{by}", {"key": KEY, "message": ids.encode(chosen)}[by])
    left = ScheduledMessage.objects.order_by("pk").values_list("channel", "client_message_id")
    others = [(consumer.channel_id, "n")] if by == "message" else []
    assert list(left) == [(other.channel_id, "m"), *others, (consumer.channel_id, "later")]


def add_scheduled(channel: Channel, name: str, key: str | None) -> None:
    ScheduledMessage.objects.create(
        channel=channel, client_message_id=name, key=key, payload=b"SECRET", dispatch_at=Now()
    )


class KilledError(BaseException):
    """Kill of the process, which no code handles."""


@pytest.mark.parametrize("by", ["key", "where"])
@pytest.mark.parametrize("moment", ["in the database", "before the lake", "between its tables"])
def test_an_erasure_that_was_killed_is_completed_when_it_is_repeated(
    place: Place, by: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    [message] = secret(ConsumerFactory.create(), b"SECRET")
    run("export", "--with-payload")
    predicate = {"key": KEY, "where": f"key = '{KEY}'"}[by]
    updates = []

    def killed(*_: object) -> None:
        raise KilledError

    def killed_in_lake(table: Table, days: Mapping[date, Collection[int]]) -> None:
        updates.append(table.name)
        if (moment, table.name) != ("between its tables", "archive"):
            raise KilledError
        update(table, days)

    update = erasing._update
    with monkeypatch.context() as kill:
        if moment == "in the database":
            kill.setattr(rollup_erasing, "erase_contents", killed)
        kill.setattr(erasing, "_update", killed_in_lake)
        with pytest.raises(KilledError):
            run("erase", f"--{by}", predicate)
    expected = {"in the database": 0, "before the lake": 1, "between its tables": 2}
    assert len(updates) == expected[moment]
    assert run("erase", f"--{by}", predicate)["messages"] == 1
    assert found_in(place, "SECRET") == found_in(place, KEY) == []
    assert (Message.objects.get(pk=message).payload, ArchivedJob.objects.get().error) == (b"", None)
    assert_same(place)


def test_a_message_that_a_job_needs_is_left_as_it_is(place: Place) -> None:
    consumer = ConsumerFactory.create()
    needed = publish(consumer.channel.name, b"SECRET", key=KEY)
    with pytest.raises(SystemExit):
        run("erase", "--key", KEY)
    assert Message.objects.get(key=KEY).payload == b"SECRET"
    assert needed is not None


def test_nothing_is_erased_while_the_lake_is_away(place: Place, tmp_path: Path) -> None:
    """An erasure is refused while the lake is not mounted, as the lake would keep the contents."""
    if not isinstance(place, Path):
        pytest.skip("an object store has no directories")
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    place.rename(tmp_path / "unmounted")
    before = query("SELECT id, payload FROM pulljobs_message ORDER BY id")
    message = ids.encode(before[0][0])
    with pytest.raises(CommandError, match="lacks rows of archive that run .* is not mounted"):
        run("erase", "--message", message)
    assert query("SELECT id, payload FROM pulljobs_message ORDER BY id") == before
    (tmp_path / "unmounted").rename(place)
    assert run("erase", "--message", message)["messages"] == 1


def test_a_lake_that_cannot_be_written_to_is_one_clear_line(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    """Verbs that write fail in one line, without a trace, and an erasure erases nothing."""
    if not isinstance(place, Path):
        pytest.skip("an object store has no directories")
    consumer = ConsumerFactory.create()
    for _ in range(2):
        published(consumer)
        jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, 1)])
        run("export", "--with-payload")
    before = query("SELECT id, payload FROM pulljobs_message ORDER BY id")
    message = ids.encode(before[0][0])
    (place / "messages" / tables.PROBE).mkdir()  # root may write to directories that are read-only
    capfd.readouterr()
    for verb in (("compact",), ("erase", "--message", message)):
        with pytest.raises(CommandError, match=r"^The lake at .* cannot be used: [^\n]*$"):
            run(*verb)
    assert "panicked" not in capfd.readouterr().err
    assert query("SELECT id, payload FROM pulljobs_message ORDER BY id") == before
    (place / "messages" / tables.PROBE).rmdir()
    assert run("erase", "--message", message)["messages"] == 1
    assert_same(place)


def test_a_wrong_predicate_is_one_clear_line(place: Place) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    before = delta(place, "messages").version()
    with pytest.raises(CommandError, match=r"^The predicate cannot be used: [^\n]*nosuch[^\n]*$"):
        run("erase", "--where", "nosuch = 1")
    assert delta(place, "messages").version() == before
