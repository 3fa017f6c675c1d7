"""What operators may do to jobs, and the upkeep that nobody has to ask for."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, NamedTuple

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.errors import LONGEST_DELAY
from pulljobs.models import Channel, Consumer, Job
from pulljobs.states import Reason, State
from pulljobs.storage import (
    archive,
    dead,
    jobs,
    lake,
    listen,
    nodes,
    partitions,
    queued,
    scheduled,
)
from pulljobs.storage.partitions import Copied, Partition
from pulljobs.storage.rows import Stats

BATCH: Final = 1000
YEARS: Final = (datetime(1000, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))
"""PostgreSQL keeps times beyond those of Python; these can be read in every time zone."""


class Outcome(NamedTuple):
    """Ids of jobs that changed and of those that were in no state for it any more."""

    done: list[int]
    refused: list[int]


def kill(job_ids: Iterable[int], *, by: str) -> Outcome:
    """End jobs that wait or run; the worker of one that runs is told at once."""
    using = settings().DATABASE
    asked = sorted(set(job_ids))
    killed = jobs.kill(using, asked, reason=Reason.KILLED, error=f"killed by {by}")
    listen.tell_lost_on_commit(using, [id for id, held in killed.items() if held])
    return _outcome(asked, killed)


def purge(consumer: Consumer) -> int:
    """End what waits, in batches; how many. What is published or comes back meanwhile may stay."""
    return sum(purging(consumer))


def purging(consumer: Consumer) -> Iterator[int]:
    """The same in batches; how many each ended."""
    using = settings().DATABASE
    newest = ids.first_of(nodes.clock(using))
    is_over = False
    while not is_over:
        is_over = True
        for waiting in queued.batches(using, consumer.pk, below=newest, size=BATCH):
            is_over = False
            yield len(jobs.kill(using, waiting, reason=Reason.PURGED, states=[State.QUEUED]))


def redrive(job_ids: Iterable[int]) -> Outcome:
    """Queue DEAD jobs again, as new."""
    using = settings().DATABASE
    asked = sorted(set(job_ids))
    redriven = jobs.redrive(using, asked)
    listen.wake_on_commit(using, redriven.values())
    return _outcome(asked, redriven)


def requeue(job_ids: Iterable[int]) -> Outcome:
    """Take jobs from who holds them, and queue them as if nobody had; their worker is told at once.

    A handler that is running one can't be ended, but what it says is lost.
    """
    using = settings().DATABASE
    asked = sorted(set(job_ids))
    held = Job.objects.using(using).filter(id__in=asked, state=State.INFLIGHT)
    taken = [(id, lease) for id, lease in held.values_list("id", "lease_token") if lease]
    finished = jobs.finish(using, [outcomes.release(Held(*one)) for one in taken])
    listen.tell_lost_on_commit(using, list(finished.states))
    listen.wake_on_commit(using, jobs.consumers_of(using, finished.states))
    return _outcome(asked, finished.states)


def reschedule(job_ids: Iterable[int], *, at: datetime | None) -> Outcome:
    """Have jobs that wait be due then; None, or a time that is past: now.

    ValueError as `check_due` has it.
    """
    check_due(at)
    using = settings().DATABASE
    asked = sorted(set(job_ids))
    rescheduled = jobs.reschedule(using, asked, at=at)
    listen.wake_on_commit(using, rescheduled.values())
    return _outcome(asked, rescheduled)


def check_due(at: datetime | None) -> None:
    """ValueError for one without a time zone, before the year 1000 or above 100 years ahead."""
    if at is None:
        return
    _check_aware("at", at)
    if at - datetime.now(UTC) > LONGEST_DELAY:
        raise ValueError(f"at must be within 100 years, not {at}.")
    _check_readable("at", at)


def check_pause(until: datetime | None) -> None:
    """ValueError for a datetime without a time zone, or outside the years 1000 to 8999."""
    if until is None:
        return
    _check_aware("until", until)
    _check_readable("until", until)


def _check_aware(name: str, moment: datetime) -> None:
    if moment.utcoffset() is None:
        raise ValueError(f"{name} must be an aware datetime, not {moment!r}: give it a time zone.")


def _check_readable(name: str, moment: datetime) -> None:
    if not YEARS[0] <= moment < YEARS[1]:
        raise ValueError(f"{name} must be within the years 1000 to 8999, not {moment}.")


def delete(job_ids: Iterable[int]) -> Outcome:
    """Forget DEAD jobs; their history stays in the archive."""
    asked = sorted(set(job_ids))
    return _outcome(asked, jobs.delete(settings().DATABASE, asked))


def pause(party: Channel | Consumer, until: datetime | None) -> None:
    """Nobody is given its jobs before then; those in flight go on.

    None, or a time that is past, ends a pause. ValueError as `check_pause` has it.
    """
    check_pause(until)
    using = settings().DATABASE
    party.paused_until = until
    party.save(using=using, update_fields=["paused_until", "changed_at"])
    wake(party)


def wake(party: Channel | Consumer) -> None:
    """Have those who wait for its jobs look again, after a change to its row."""
    using = settings().DATABASE
    own = {"channel": party} if isinstance(party, Channel) else {"pk": party.pk}
    ids = Consumer.objects.using(using).filter(**own).values_list("pk", flat=True)
    listen.wake_on_commit(using, ids)


def redrive_all(consumer: Consumer) -> int:
    """The same for all that a consumer has, in batches; one that dies again meanwhile stays."""
    redriven, last = 0, 0
    while batch := dead.ids(settings().DATABASE, consumer.pk, after=last, limit=BATCH):
        redriven += len(redrive(batch).done)
        last = batch[-1]
    return redriven


def delete_exhausted(consumer: Consumer, job_id: int | None = None) -> int:
    """Forget DEAD jobs whose retries are used up, in batches, or the one; how many."""
    using = settings().DATABASE
    deleted = 0
    while batch := dead.delete(using, consumer.pk, consumer.retries, job_id, limit=BATCH):
        deleted += batch
    return deleted


def stats(consumer: Consumer) -> Stats:
    """What waits, runs and is dead, for pages: no count goes above 10,000."""
    return jobs.stats(settings().DATABASE, consumer.pk)


class Upkeep(NamedTuple):
    made: list[Partition]
    dropped: list[Partition]
    not_owned: Sequence[str] = ()
    """Tables that this role does not own, so that nothing was made nor dropped."""


def maintain() -> Upkeep:
    """Make partitions ahead; drop what is older than the retention, if one is set.

    Where there is a lake, only what was verified to be there: see `pulljobs lake verify`. A role
    that does not own the tables forgets old rows, and leaves the partitions to the owner.
    """
    *_before, upkeep = maintaining()
    return upkeep


def maintaining() -> Iterator[Upkeep]:
    """The same in steps, for who has other things to do between them; what was done so far."""
    using, now = settings().DATABASE, settings()
    nodes.forget_waits(using)
    upkeep = Upkeep([], [], partitions.not_owned(using))
    yield upkeep
    if not upkeep.not_owned:
        for made in partitions.make_ahead(using, now.PARTITIONS_AHEAD):
            upkeep.made.append(made)
            yield upkeep
    if now.RETENTION is not None:
        for dropped in prune(now.RETENTION):
            upkeep.dropped.extend([dropped] if dropped else [])
            yield upkeep


class Old(NamedTuple):
    """A partition that is old enough to be dropped."""

    partition: Partition
    stays: str
    """Why it is not; empty: it is."""


def prunable(age: timedelta) -> list[Old]:
    """What `prune` would look at right now."""
    using = settings().DATABASE
    copied = _copied(age)
    old = partitions.older(using, age)
    if partitions.not_owned(using):
        return [Old(one, "another role owns the table") for one in old]
    return [Old(one, _why_it_stays(using, one, copied)) for one in old]


def prune(
    age: timedelta, told: Callable[[Partition], object] = lambda partition: None
) -> Iterator[Partition | None]:
    """Drop the partitions that are wholly older, and forget what else is kept as long, in steps.

    Each partition that was dropped, and None for a step of another kind. `told` is called for each
    that was looked at, dropped or not. A role that does not own the tables leaves the partitions to
    the owner.
    """
    using, where = settings().DATABASE, lake.location(settings().LAKE)
    is_owner = not partitions.not_owned(using)
    for dropped in partitions.drop_before(using, age, _copied(age), told) if is_owner else ():
        lake.dropped(using, where, [dropped])
        yield dropped
    for forget in _FORGETTING:
        while forget(using, age):
            yield None
    nodes.forget(using, age)


def _forget_publications(using: str, age: timedelta) -> int:
    return partitions.forget_publications(using, age, settings().DEDUPE_WINDOW)


_FORGETTING: Final = (
    _forget_publications,
    archive.forget_attempts,
    scheduled.forget_dispatched,
)


def _copied(age: timedelta) -> Copied | None:
    where = lake.location(settings().LAKE)
    return partial(lake.copied, settings().DATABASE, where, age) if where else None


def _why_it_stays(using: str, partition: Partition, copied: Copied | None) -> str:
    if partitions.needed(using, partition):
        return "live jobs need it"
    if copied is not None and copied(partition) is None:
        return "the lake has no verified copy of it"
    return ""


def _outcome(asked: list[int], done: Iterable[int]) -> Outcome:
    changed = set(done)
    return Outcome([id for id in asked if id in changed], [id for id in asked if id not in changed])
