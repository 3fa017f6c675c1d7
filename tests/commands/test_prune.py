"""`pulljobs prune` deletes what it told before, no more, and writes down who did it."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings

from pulljobs import auditing
from pulljobs.admin.dashboard import figures
from pulljobs.management.subcommands import prune
from pulljobs.models import ArchivedJob, AuditEntry, Consumer, Job
from pulljobs.storage import health, nodes, partitions
from pulljobs.storage.partitions import Partition
from tests.days import no_days
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ConsumerFactory, JobFactory, published
from tests.sessions import contents, query, session

LONG_AGO = datetime(2021, 1, 1, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _only_its_own_days(transactional_db: None) -> Iterator[None]:
    with no_days():
        yield


@pytest.fixture
def other(consumer: Consumer) -> Consumer:
    """Of another channel: two dead jobs beside the three of `consumer`, and one that waits."""
    made: Consumer = ConsumerFactory.create(channel__name="news", name="mailing")
    for of, count in ((consumer, 3), (made, 2)):
        for _ in range(count):
            JobFactory.create(consumer=of, state="DEAD")
    published(consumer)
    return made


def test_dry_run_tells_and_changes_nothing(other: Consumer) -> None:
    before = contents()
    told, code = answer("prune", "dead", "--dry-run")
    assert (code, told["jobs"], told["is_more"], told["deleted"]) == (0, 5, False, 0)
    assert answer("prune", "dead", "--dry-run", "--only", "orders")[0]["jobs"] == 3
    assert answer("prune", "dead", "--dry-run", "--reason", "killed")[0]["jobs"] == 0
    assert answer("prune", "dead", "--dry-run", "--older-than", "1h")[0]["jobs"] == 0
    assert contents() == before
    assert not AuditEntry.objects.exists()


def test_dead_jobs_are_deleted_in_batches_and_their_history_stays(
    other: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "BATCH", 2)
    told, code = answer("prune", "dead", "--only", "orders/invoicing", "--yes")
    assert (code, told["deleted"], told["left_alone"]) == (0, 3, 0)
    assert Job.objects.filter(state="DEAD").count() == 2
    assert Job.objects.filter(state="QUEUED").count() == 1
    assert ArchivedJob.objects.filter(state="DEAD").count() == 5
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.done, str(entry)) == ("delete", 3, told["entry"])
    assert "command line" in entry.by
    assert "orders/invoicing" in entry.subject
    assert entry.batches.count() >= 2


def test_a_worker_that_is_at_it_is_waited_for(
    other: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Workers go on with what is unfinished, too; it is told as done when it is."""
    proceed, takes = auditing.proceed, iter(["SELECT FROM pulljobs_audit_entry FOR UPDATE"])

    def beside_a_worker(seconds: float, entry_id: int) -> bool:
        with session() as worker:
            worker.execute(next(takes, "SELECT"))
            return proceed(seconds, entry_id)

    monkeypatch.setattr(auditing, "proceed", beside_a_worker)
    told, code = answer("prune", "dead", "--yes")
    assert (code, told["deleted"], told["stopped_by"]) == (0, 5, None)
    assert not Job.objects.filter(state="DEAD").exists()


def test_what_somebody_stopped_is_told_as_stopped(
    other: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed = auditing.proceed

    def until_oleg_stops_it(seconds: float, entry_id: int) -> bool:
        went_on = proceed(0, entry_id)
        auditing.stop(AuditEntry.objects.get(pk=entry_id), by="oleg")
        return went_on

    monkeypatch.setattr(auditing, "proceed", until_oleg_stops_it)
    monkeypatch.setattr(auditing, "BATCH", 2)
    told, code = answer("prune", "dead", "--yes")
    assert (code, told["deleted"], told["stopped_by"]) == (1, 2, "oleg")
    assert Job.objects.filter(state="DEAD").count() == 3


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_it_asks_before_and_takes_no_for_an_answer(
    other: Consumer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    call_command("pulljobs", "prune", "dead", stdout=StringIO())
    assert "Delete 5 dead jobs of all consumers? [y/N]" in capsys.readouterr().err
    assert Job.objects.filter(state="DEAD").count() == 5
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    call_command("pulljobs", "prune", "dead", stdout=StringIO())
    assert Job.objects.filter(state="DEAD").count() == 0


def test_examples_of_the_help_are_understood(consumer: Consumer) -> None:
    examples = re.findall("^    prune (.+)$", prune.__doc__ or "", re.MULTILINE)
    assert len(examples) > 1
    for example in examples:
        with override_settings(PULLJOBS={"RETENTION": timedelta(days=60)}):
            assert answer("prune", *example.split(), "--dry-run")[1] == 0


def old_days(age: int) -> list[Partition]:
    day = nodes.clock(USING).astimezone(UTC).date() - timedelta(days=age)
    made = [Partition(table, day) for table in partitions.PARTITIONED]
    for one in made:
        assert partitions._made(USING, one)
    return made


def fates(*arguments: str) -> dict[str, str | None]:
    told, code = answer("prune", "history", *arguments)
    assert code == 0
    return {one["partition"]: one["stays"] for one in told["partitions"]}


@override_settings(PULLJOBS={"RETENTION": timedelta(days=60)})
def test_history_goes_by_days_but_for_what_live_jobs_need(consumer: Consumer) -> None:
    messages, archive = old_days(100)
    [job] = published(consumer)
    query("UPDATE pulljobs_message SET id = %s", [messages.bounds[0]])
    query("UPDATE pulljobs_job SET message_id = %s WHERE id = %s", [messages.bounds[0], job])
    shown = {messages.name: "live jobs need it", archive.name: None}
    assert fates("--dry-run") == shown
    assert fates("--dry-run", "--older-than=200d") == {}
    assert archive in partitions.existing(USING, archive.table)
    told, _code = answer("prune", "history", "--yes")
    assert told["dropped"] == [archive.name]
    assert partitions.existing(USING, messages.table)[0] == messages
    assert archive not in partitions.existing(USING, archive.table)
    assert "stays: live jobs need it" in text("prune", "history", "--dry-run")


@override_settings(PULLJOBS={})
def test_what_went_with_its_day_breaks_no_promise(consumer: Consumer) -> None:
    """A dead job keeps the day of its message, not that of its death, nor the jobs of others."""
    messages, archive = old_days(2)
    old_days(1)
    JobFactory.create(consumer=consumer, state="DEAD")
    ConsumerFactory.create(channel=consumer.channel)
    Consumer.objects.update(created_at=LONG_AGO, changed_at=LONG_AGO)
    first = messages.bounds[0]
    query("UPDATE pulljobs_message SET id = %s, published_at = %s", [first, messages.day])
    query("UPDATE pulljobs_job SET id = %s, message_id = %s", [first, first])
    query("UPDATE pulljobs_archived_job SET id = %s, job_id = %s, message_id = %s", [first] * 3)
    assert answer("verify")[0]["broken"].keys() == {"consumer_has_its_job"}
    assert answer("prune", "history", "--older-than=1d", "--yes")[0]["dropped"] == [archive.name]
    assert messages in partitions.existing(USING, messages.table)
    assert answer("verify")[0]["broken"] == {}


@override_settings(PULLJOBS={})
def test_what_was_dropped_is_told_apart_from_what_would_be(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though a day is needed again since the question."""
    messages, archive = old_days(100)
    sizes = [one.bytes for one in health.sizes(USING, [messages, archive])]
    told, drop = [figures.size(one) for one in sizes], partitions.drop

    def dropped(using: str, one: Partition, xid: int | None) -> bool:
        return one == archive and drop(using, one, xid)

    with monkeypatch.context() as patch:
        patch.setattr(partitions, "drop", dropped)
        tried = text("prune", "history", "--older-than=30d", "--yes")
    assert f"1 partitions dropped, {told[1]}." in tried
    assert "not dropped: it is needed since, or gone already" in tried
    planned = text("prune", "history", "--older-than=30d", "--dry-run")
    assert f"1 partitions would be dropped, {told[0]}." in planned
    monkeypatch.setattr(partitions, "needed", lambda *_: True)
    kept = text("prune", "history", "--older-than=30d", "--yes")
    assert "0 partitions dropped, 0 bytes." in kept
