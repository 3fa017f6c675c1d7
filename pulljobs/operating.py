"""Operators' actions on jobs, pauses of consumers, and the maintenance that workers do."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from pulljobs import hooks, ids
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.errors import LONGEST_DELAY
from pulljobs.hooks import HistoryKeeper
from pulljobs.models import Channel, Consumer, Job
from pulljobs.models.row_arguments import check_row
from pulljobs.states import Reason, State
from pulljobs.storage import (
    archive,
    clients,
    counting,
    dead,
    forgetting,
    jobs,
    listen,
    nodes,
    partition_dropping,
    partition_making,
    partitions,
    progress,
    queued,
    scheduled,
    turns,
)
from pulljobs.storage.partition_dropping import Copied
from pulljobs.storage.partitions import Partition
from pulljobs.storage.rows import Stats
from pulljobs.storage.transactions import after_commit

BATCH: Final = 1000
YEARS: Final = (datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))
"""Bounds of times that Python can read in every time zone. PostgreSQL stores others, too."""


class Changed(NamedTuple):
    """Ids of the jobs that an action changed, and of those that it could not change."""

    done: list[int]
    refused: list[int]


def kill(job_ids: Iterable[int | str], *, by: str) -> Changed:
    """Kill queued and running jobs: they are DEAD, and workers that run them are notified.

    Here and in the functions below, ids are numbers or have their public form. ValueError is raised
    if one is no id.
    """
    using = settings().DATABASE
    asked = ids.numbers_of(job_ids)
    killed = jobs.kill(using, asked, reason=Reason.KILLED, error=f"killed by {by}")
    listen.notify_lost_on_commit(using, [id for id, held in killed.items() if held])
    with after_commit(using, "the kill of children"):  # A sweep kills them.
        for name in hooks.kill_listeners:
            hooks.load(name)(list(killed))
    return _changed(asked, killed)


def purge(consumer: Consumer) -> int:
    """Kill the queued jobs of a consumer and return how many.

    Jobs that are published or given back to the queue in the meantime may stay.
    """
    check_row(consumer, Consumer)
    return sum(purging(consumer))


def purging(consumer: Consumer) -> Iterator[int]:
    """Kill the queued jobs of a consumer batch by batch, and yield how many each batch killed."""
    using = settings().DATABASE
    newest = ids.first_of(nodes.clock(using))
    is_over = False
    while not is_over:
        is_over = True
        for waiting in queued.batches(using, consumer.pk, below=newest, size=BATCH):
            is_over = False
            yield len(jobs.kill(using, waiting, reason=Reason.PURGED, states=[State.QUEUED]))


def redrive(job_ids: Iterable[int | str]) -> Changed:
    """Queue DEAD jobs again with their counts reset."""
    using = settings().DATABASE
    asked = ids.numbers_of(job_ids)
    with ExitStack() as listeners:
        for name in hooks.redrive_listeners:
            listeners.enter_context(hooks.load(name)(asked))
        redriven = jobs.redrive(using, asked)
    listen.wake_on_commit(using, redriven.values())
    return _changed(asked, redriven)


def requeue(job_ids: Iterable[int | str]) -> Changed:
    """Take running jobs from their holders and queue them, uncharged. Workers are notified.

    A handler that runs such a job is not ended, but its outcome is discarded.
    """
    using = settings().DATABASE
    asked = ids.numbers_of(job_ids)
    held = Job.objects.using(using).filter(id__in=asked, state=State.INFLIGHT)
    taken = [Held(id, token) for id, token in held.values_list("id", "lease_token") if token]
    finished = jobs.finish(using, [outcomes.release(job, started=True) for job in taken])
    listen.notify_lost_on_commit(using, list(finished.states))
    jobs.wake_on_commit(using, finished.states)
    return _changed(asked, finished.states)


def reschedule(job_ids: Iterable[int | str], *, at: datetime | None) -> Changed:
    """Make queued jobs due at the time `at`. None or a time in the past makes them due now.

    Raise ValueError for a time without zone, before the year 1000 or over 100 years ahead.
    """
    check_due(at)
    using = settings().DATABASE
    asked = ids.numbers_of(job_ids)
    rescheduled = jobs.reschedule(using, asked, at=at)
    listen.wake_on_commit(using, rescheduled.values())
    return _changed(asked, rescheduled)


def check_due(at: datetime | None) -> None:
    """Raise ValueError unless a due time is None, or aware and at most 100 years ahead.

    Times before the year 1000 are refused, too.
    """
    if at is None:
        return
    _check_aware("at", at)
    if at - datetime.now(UTC) > LONGEST_DELAY:
        raise ValueError(f"at must be within 100 years, not {at}.")
    _check_readable("at", at)


def check_pause(until: datetime | None) -> None:
    """Raise ValueError unless the end of a pause is None or an aware time before the year 9000.

    Times before the year 1000 are refused, too.
    """
    if until is None:
        return
    _check_aware("until", until)
    _check_readable("until", until)


def _check_aware(name: str, moment: object) -> None:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise ValueError(f"{name} must be an aware datetime, not {moment!r}: give it a time zone.")


def _check_readable(name: str, moment: datetime) -> None:
    if not YEARS[0] <= moment < YEARS[1]:
        raise ValueError(f"{name} must be within the years 1000 to 8999, not {moment}.")


def delete(job_ids: Iterable[int | str]) -> Changed:
    """Delete DEAD jobs from the job table. Their history stays in the archive."""
    asked = ids.numbers_of(job_ids)
    return _changed(asked, jobs.delete(settings().DATABASE, asked))


def pause(token_holder: Channel | Consumer, until: datetime | None) -> None:
    """Stop claims of the channel's or consumer's jobs until a time. Jobs in flight go on.

    None or a time in the past ends a pause, and the throttles of a consumer and its keys. Raise
    ValueError for a time that `check_pause` refuses.
    """
    check_row(token_holder, Channel, Consumer)
    check_pause(until)
    using = settings().DATABASE
    token_holder.paused_until = until
    token_holder.save(using=using, update_fields=["paused_until", "changed_at"])
    if isinstance(token_holder, Consumer) and (until is None or until <= nodes.clock(using)):
        row = Consumer.objects.using(using).filter(pk=token_holder.pk)
        row.update(throttled_until=None)
        turns.end_throttles(using, token_holder.pk)
    wake(token_holder)


def wake(token_holder: Channel | Consumer) -> None:
    """Wake the waiters of the channel or consumer after the commit, to notice changed settings."""
    check_row(token_holder, Channel, Consumer)
    using = settings().DATABASE
    rows = Consumer.objects.using(using)
    if isinstance(token_holder, Channel):
        rows = rows.filter(channel=token_holder)
    else:
        rows = rows.filter(pk=token_holder.pk)
    listen.wake_on_commit(using, rows.values_list("pk", flat=True))


def redrive_all(consumer: Consumer) -> int:
    """Redrive all DEAD jobs of a consumer in batches and return how many.

    A job that becomes DEAD again in the meantime stays DEAD.
    """
    check_row(consumer, Consumer)
    redriven, last = 0, 0
    while batch := dead.ids(settings().DATABASE, consumer.pk, after=last, limit=BATCH):
        redriven += len(redrive(batch).done)
        last = batch[-1]
    return redriven


def delete_exhausted(consumer: Consumer, job_id: int | None = None) -> int:
    """Delete the consumer's DEAD jobs whose retries are used up, in batches. Return how many.

    With `job_id`, only this job is deleted, if it is one of them.
    """
    check_row(consumer, Consumer)
    using = settings().DATABASE
    deleted = 0
    while batch := dead.delete(using, consumer.pk, consumer.retries, job_id, limit=BATCH):
        deleted += batch
    return deleted


def stats(consumer: Consumer) -> Stats:
    """Count the consumer's jobs by state for pages. No count goes above 10,000."""
    check_row(consumer, Consumer)
    return jobs.stats(settings().DATABASE, consumer.pk)


class Upkeep(NamedTuple):
    """Result of the maintenance of partitions."""

    made: list[Partition]
    dropped: list[Partition]
    not_owned: Sequence[str] = ()
    """Tables that the database role does not own, so that no partition was made or dropped."""


def maintain() -> Upkeep:
    """Create partitions ahead of time, and drop those older than `RETENTION`, if that is set.

    A day stays if an active keeper of `hooks.history_keepers` has no copy of it. If the database
    role does not own the tables, only old rows are deleted. Settlements are counted for the
    dashboard as well, unless the caller has a transaction open.
    """
    counting.count_settlements(settings().DATABASE, is_patient=True)
    *_before, upkeep = maintaining()
    return upkeep


def count_settlements() -> bool:
    """Count settlements for the dashboard if that is due. A loop calls this in each pass.

    The result is always False: it need not be called again in this pass.
    """
    counting.count_settlements(settings().DATABASE)
    return False


def maintaining() -> Iterator[Upkeep]:
    """Maintain partitions and old rows as `maintain` does, in several transactions.

    After one or more of them, yield the same `Upkeep` again, with what was done so far.
    """
    using, conf = settings().DATABASE, settings()
    nodes.forget_waits(using)
    counting.forget(using)
    upkeep = Upkeep([], [], partitions.not_owned(using))
    yield upkeep
    for forget in (clients.forget_old, progress.forget_old):
        while forget(using):
            yield upkeep
    if not upkeep.not_owned:
        for made in partition_making.make_ahead(using, conf.PARTITIONS_AHEAD):
            upkeep.made.append(made)
            yield upkeep
    if conf.RETENTION is not None:
        for dropped in prune(conf.RETENTION):
            if dropped is not None:
                upkeep.dropped.append(dropped)
            yield upkeep


class OldPartition(NamedTuple):
    """Partition that is old enough to be dropped."""

    partition: Partition
    stays: str
    """Reason for keeping it, or an empty text if it can be dropped."""


def prunable(age: timedelta) -> list[OldPartition]:
    """Return the partitions wholly older than `age`, each with the reason if `prune` keeps it.

    `prune` also keeps one that got rows after its copy was made, which is not looked for here.
    """
    using = settings().DATABASE
    old = partitions.older(using, age)
    if partitions.not_owned(using):
        return [OldPartition(partition, "another role owns the table") for partition in old]
    return [OldPartition(partition, _why_it_stays(using, partition, age)) for partition in old]


def prune(
    age: timedelta, on_partition: Callable[[Partition], object] = lambda partition: None
) -> Iterator[Partition | None]:
    """Drop partitions of messages and the archive wholly older than `age`, and other old rows.

    A partition stays if live jobs need it, or if an active keeper of history has no copy of it.
    Yield each partition that was dropped, and None after other deletions. `on_partition` is called
    with each partition that is old enough, dropped or not. A role that does not own the tables
    leaves the partitions alone.
    """
    using, keepers = settings().DATABASE, _active_keepers()
    is_owner = not partitions.not_owned(using)
    droppable = (
        partition_dropping.drop_before(using, age, _copied(age), on_partition) if is_owner else ()
    )
    for dropped in droppable:
        for keeper in keepers:
            keeper.record_drop(using, dropped.table, dropped.day)
        yield dropped
    for forget in (*_FORGETTING, *map(hooks.load, hooks.forgetters)):
        while forget(using, age):
            yield None
    nodes.forget(using, age)


def _forget_publications(using: str, age: timedelta) -> int:
    return forgetting.forget_publications(using, age, settings().DEDUPE_WINDOW)


_FORGETTING: Final = (
    _forget_publications,
    archive.forget_attempts,
    scheduled.forget_dispatched,
)


def _active_keepers() -> list[HistoryKeeper]:
    keepers: list[HistoryKeeper] = [hooks.load(name) for name in hooks.history_keepers]
    return [keeper for keeper in keepers if keeper.is_active()]


def _copied(age: timedelta) -> Copied | None:
    """Return a function that finds below which transaction number all copies are complete.

    It takes a partition, and compares the copies of all active keepers of history. It returns None
    if one of them has no complete copy. Without active keepers, return None in place of a function.
    """
    using, keepers = settings().DATABASE, _active_keepers()

    def find_copy(partition: Partition) -> int | None:
        table, day = partition
        copies = [keeper.find_copy(using, table, day, age) for keeper in keepers]
        complete = [copy for copy in copies if copy is not None]
        return min(complete) if len(complete) == len(copies) else None

    return find_copy if keepers else None


def _why_it_stays(using: str, partition: Partition, age: timedelta) -> str:
    if partition_dropping.needed(using, partition):
        return "live jobs need it"
    for keeper in _active_keepers():
        if keeper.find_copy(using, *partition, age) is None:
            return keeper.missing
    return ""


def _changed(asked: list[int], done: Iterable[int]) -> Changed:
    changed = set(done)
    return Changed([id for id in asked if id in changed], [id for id in asked if id not in changed])
