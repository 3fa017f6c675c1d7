"""What operators may do to jobs, and the upkeep that nobody has to ask for."""

from collections.abc import Iterable
from typing import NamedTuple

from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.states import Reason
from pulljobs.storage import jobs, listen, partitions
from pulljobs.storage.partitions import Partition
from pulljobs.storage.rows import Stats


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


def redrive(job_ids: Iterable[int]) -> Outcome:
    """Queue DEAD jobs again, as new."""
    using = settings().DATABASE
    asked = sorted(set(job_ids))
    redriven = jobs.redrive(using, asked)
    listen.wake_on_commit(using, redriven.values())
    return _outcome(asked, redriven)


def delete(job_ids: Iterable[int]) -> Outcome:
    """Forget DEAD jobs; their history stays in the archive."""
    asked = sorted(set(job_ids))
    return _outcome(asked, jobs.delete(settings().DATABASE, asked))


def stats(consumer: Consumer) -> Stats:
    """What waits, runs and is dead, for pages: no count goes above 10,000."""
    return jobs.stats(settings().DATABASE, consumer.pk)


class Upkeep(NamedTuple):
    made: list[Partition]
    dropped: list[Partition]


def maintain() -> Upkeep:
    """Make partitions ahead; drop what is older than the retention, if one is set."""
    using, now = settings().DATABASE, settings()
    made = partitions.make_ahead(using, now.PARTITIONS_AHEAD)
    if now.RETENTION is None:
        return Upkeep(made, [])
    dropped = partitions.drop_before(using, now.RETENTION)
    partitions.forget_publications(using, now.RETENTION)
    return Upkeep(made, dropped)


def _outcome(asked: list[int], done: Iterable[int]) -> Outcome:
    changed = set(done)
    return Outcome([id for id in asked if id in changed], [id for id in asked if id not in changed])
