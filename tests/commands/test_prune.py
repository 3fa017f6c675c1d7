"""`pulljobs prune` deletes what it announced, no more, and records the user."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from django.core.management import call_command
from django.test import override_settings

from pulljobs import auditing
from pulljobs.admin.dashboard import formats
from pulljobs.management.subcommands import prune
from pulljobs.models import ArchivedJob, AuditEntry, Consumer, Job
from pulljobs.storage import health, nodes, partition_dropping, partition_making, partitions
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
    """Create another channel's consumer, with two dead jobs.

    The fixture `consumer` gets three dead jobs and a queued one.
    """
    other_consumer: Consumer = ConsumerFactory.create(channel__name="news", name="mailing")
    for owner, count in ((consumer, 3), (other_consumer, 2)):
        for _ in range(count):
            JobFactory.create(consumer=owner, state="DEAD")
    published(consumer)
    return other_consumer


def test_a_dry_run_counts_and_changes_nothing(other: Consumer) -> None:
    before = contents()
    result, code = answer("prune", "dead", "--dry-run")
    assert (code, result["jobs"], result["is_more"], result["deleted"]) == (0, 5, False, 0)
    assert answer("prune", "dead", "--dry-run", "--only", "orders")[0]["jobs"] == 3
    assert answer("prune", "dead", "--dry-run", "--reason", "killed")[0]["jobs"] == 0
    assert answer("prune", "dead", "--dry-run", "--older-than", "1h")[0]["jobs"] == 0
    assert contents() == before
    assert not AuditEntry.objects.exists()


def test_dead_jobs_are_deleted_in_batches_and_their_history_stays(
    other: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "BATCH", 2)
    result, code = answer("prune", "dead", "--only", "orders/invoicing", "--yes")
    assert (code, result["deleted"], result["left_alone"]) == (0, 3, 0)
    assert Job.objects.filter(state="DEAD").count() == 2
    assert Job.objects.filter(state="QUEUED").count() == 1
    assert ArchivedJob.objects.filter(state="DEAD").count() == 5
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.done, str(entry)) == ("delete", 3, result["entry"])
    assert "command line" in entry.by
    assert "orders/invoicing" in entry.subject
    assert entry.batches.count() >= 2


def test_prune_waits_for_a_worker_that_deletes_the_jobs(
    other: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a worker holds the action, `prune` waits. It reports all deleted jobs at the end."""
    proceed, takes = auditing.proceed, iter(["SELECT FROM pulljobs_audit_entry FOR UPDATE"])

    def next_to_a_worker(seconds: float, entry_id: int) -> bool:
        with session() as worker:
            worker.execute(next(takes, "SELECT"))
            return proceed(seconds, entry_id)

    monkeypatch.setattr(auditing, "proceed", next_to_a_worker)
    result, code = answer("prune", "dead", "--yes")
    assert (code, result["deleted"], result["stopped_by"]) == (0, 5, None)
    assert not Job.objects.filter(state="DEAD").exists()


def test_a_stopped_deletion_is_reported_as_stopped(
    other: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed = auditing.proceed

    def until_oleg_stops_it(seconds: float, entry_id: int) -> bool:
        went_on = proceed(0, entry_id)
        auditing.stop(AuditEntry.objects.get(pk=entry_id), by="oleg")
        return went_on

    monkeypatch.setattr(auditing, "proceed", until_oleg_stops_it)
    monkeypatch.setattr(auditing, "BATCH", 2)
    result, code = answer("prune", "dead", "--yes")
    assert (code, result["deleted"], result["stopped_by"]) == (1, 2, "oleg")
    assert Job.objects.filter(state="DEAD").count() == 3


class Keyboard(StringIO):
    def isatty(self) -> bool:
        return True


def test_prune_asks_for_confirmation_and_obeys_a_no(
    other: Consumer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard("\n"))
    call_command("pulljobs", "prune", "dead", stdout=StringIO())
    assert "Delete 5 dead jobs of all consumers? [y/N]" in capsys.readouterr().err
    assert Job.objects.filter(state="DEAD").count() == 5
    monkeypatch.setattr(sys, "stdin", Keyboard("y\n"))
    call_command("pulljobs", "prune", "dead", stdout=StringIO())
    assert Job.objects.filter(state="DEAD").count() == 0


def test_the_examples_of_the_help_are_valid(consumer: Consumer) -> None:
    examples = re.findall("^    prune (.+)$", prune.__doc__ or "", re.MULTILINE)
    assert len(examples) > 1
    for example in examples:
        with override_settings(PULLJOBS={"RETENTION": timedelta(days=60)}):
            assert answer("prune", *example.split(), "--dry-run")[1] == 0


def old_days(age: int) -> list[Partition]:
    day = nodes.clock(USING).astimezone(UTC).date() - timedelta(days=age)
    days = [Partition(table, day) for table in partitions.PARTITIONED]
    for partition in days:
        assert partition_making._make(USING, partition)
    return days


def fates(*arguments: str) -> dict[str, str | None]:
    result, code = answer("prune", "history", *arguments)
    assert code == 0
    return {row["partition"]: row["stays"] for row in result["partitions"]}


@override_settings(PULLJOBS={"RETENTION": timedelta(days=60)})
def test_history_is_dropped_by_days_except_those_that_live_jobs_need(consumer: Consumer) -> None:
    messages, archive = old_days(100)
    [job] = published(consumer)
    query("UPDATE pulljobs_message SET id = %s", [messages.bounds[0]])
    query("UPDATE pulljobs_job SET message_id = %s WHERE id = %s", [messages.bounds[0], job])
    shown = {messages.name: "live jobs need it", archive.name: None}
    assert fates("--dry-run") == shown
    assert fates("--dry-run", "--older-than=200d") == {}
    assert archive in partitions.existing(USING, archive.table)
    result, _code = answer("prune", "history", "--yes")
    assert result["dropped"] == [archive.name]
    assert partitions.existing(USING, messages.table)[0] == messages
    assert archive not in partitions.existing(USING, archive.table)
    assert "stays: live jobs need it" in text("prune", "history", "--dry-run")


@override_settings(PULLJOBS={})
def test_dropped_days_break_no_invariant(consumer: Consumer) -> None:
    """The day of a dead job's message is kept, while the day of its archive row is dropped."""
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
def test_dropped_partitions_differ_from_those_that_would_be_dropped(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result leaves out a day that was not dropped after all, because it is needed again."""
    messages, archive = old_days(100)
    sizes = [size.bytes for size in health.sizes(USING, [messages, archive])]
    labels, drop = [formats.size(size) for size in sizes], partition_dropping.drop

    def drop_archive(using: str, partition: Partition, xid: int | None) -> bool:
        return partition == archive and drop(using, partition, xid)

    with monkeypatch.context() as patch:
        patch.setattr(partition_dropping, "drop", drop_archive)
        tried = text("prune", "history", "--older-than=30d", "--yes")
    assert f"1 partition dropped, {labels[1]}." in tried
    assert "not dropped: it is needed again, or already gone" in tried
    planned = text("prune", "history", "--older-than=30d", "--dry-run")
    assert f"1 partition would be dropped, {labels[0]}." in planned
    monkeypatch.setattr(partition_dropping, "needed", lambda *_: True)
    kept = text("prune", "history", "--older-than=30d", "--yes")
    assert "0 partitions dropped, 0 bytes." in kept
