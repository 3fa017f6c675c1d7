"""Claims of batches by a stream, and takeovers of batches that an earlier owner left.

The argument `seq` is the number of a batch in its stream, from 1 on.
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs.engine.claiming import guarded, limits
from pulljobs.engine.claiming.claimer import Claimer
from pulljobs.engine.claiming.guarded import Guards
from pulljobs.engine.claiming.rows import Claimed, Terms
from pulljobs.engine.encodings import array
from pulljobs.engine.low_water_marks import Entry
from pulljobs.errors import StreamTaken
from pulljobs.states import Event
from pyspark_pulljobs import ownership, settling
from pyspark_pulljobs.database_session import Session
from pyspark_pulljobs.ownership import Owned

OPEN: Final = "open"
RELEASED: Final = "released"
NO_LIMIT: Final = 2**31 - 1
"""Number of jobs to claim for a consumer without a limit of jobs in flight."""
MAX_SEQ: Final = 2**63 - 1
"""Largest number of a batch."""
LEASE_LOST: Final = "Lease lost: the Spark driver crashed or stopped renewing."


class StreamBatch(NamedTuple):
    """Batch that this process claimed or took over."""

    id: int
    lease_token: UUID
    jobs: int
    """Number of its jobs, with those that its lease does not hold."""
    redelivered: int
    """Number of its jobs that had been claimed before."""


def claim(
    session: Session,
    claimer: Claimer,
    owned: Owned,
    seq: int,
    wanted: int,
    terms: Terms,
    limit_entry: Callable[[Entry], Entry],
) -> tuple[Claimed, StreamBatch | None]:
    """Claim at most `wanted` jobs, and insert the row of their batch, in one transaction.

    `limit_entry` may change the position at which a claim enters the claim index. Return the result
    of the claim, and the batch, or None if it got no jobs. Raise StreamTaken if another process has
    taken the stream over.
    """
    try:
        with session.atomic():
            ownership.hold(session, owned)
            claimed = claimer.walk(
                wanted, lambda entry: claimer.claim(session, wanted, terms, limit_entry(entry))
            )
            if claimed.taken is None:
                return claimed, None
            token = claimed.taken.lease_token
            params = {"stream_id": owned.stream_id, "seq": seq, "lease_token": token}
            if not (rows := session.run("open_batch", params)):
                raise StreamTaken(owned.stream)
    except BaseException:
        claimer.forget()  # The rollback released the claimed jobs.
        raise
    redelivered = sum(job.deliveries > 1 for job in claimed.jobs)
    return claimed, StreamBatch(rows[0].batch_id, token, len(claimed.jobs), redelivered)


def take_over(session: Session, owned: Owned, seq: int, terms: Terms) -> StreamBatch | None:
    """Claim the jobs of a batch under a new lease, unless it is acked: then return None.

    Jobs that another process claimed are left out, and jobs that keys or limits hold back. Jobs
    that the batch still held use up one more of `max_deliveries` and no retry, because their task
    may not have begun. Raise StreamTaken if another process has taken the stream over.
    """
    with session.atomic():
        ownership.hold(session, owned)
        params = {"stream_id": owned.stream_id, "after": seq - 1, "until": seq}
        if not (rows := session.run("lock_batches", params)):
            return None
        [row] = rows
        settling.end_batch(session, row.lease_token, row.job_ids, Event.EXPIRE, LEASE_LOST)
        lease_token = _reclaim(session, owned, row.job_ids, terms)
        session.run(
            "move_batch", {"batch_id": row.batch_id, "lease_token": lease_token, "state": OPEN}
        )
    jobs = len(row.job_ids)
    return StreamBatch(row.batch_id, lease_token or row.lease_token, jobs, redelivered=jobs)


def _lock_room(session: Session, consumer_id: int, guards: Guards) -> int | None:
    """Lock the limits of the consumer, and return how many more jobs may be in flight.

    None stands for any number. The result is 0 if the consumer's limit group was just changed.
    """
    allowance = limits.lock_allowance(session, consumer_id, guards.group_id)
    # Its group was changed at this moment: the jobs stay queued.
    return 0 if allowance is None else allowance.room


def _reclaim(session: Session, owned: Owned, job_ids: list[int], terms: Terms) -> UUID | None:
    guards = guarded.read_guards(session, owned.consumer_id)
    # Jobs that are claimed again take no tokens: the first claim did.
    room = _lock_room(session, owned.consumer_id, guards) if guards.limited else None
    params = {
        "consumer_id": owned.consumer_id,
        "job_ids": array(job_ids),
        "wanted": NO_LIMIT if room is None else room,
        "exclusive": guards.exclusive,
        "by_turn": guards.by_turn,
        **terms._asdict(),
    }
    if guards.exclusive:
        session.run("lock_keys_of_jobs", params)
    if guards.by_turn:
        session.run("lock_turns_of_jobs", params)
    [row] = session.run("reclaim", params)
    return row.lease_token  # type: ignore[no-any-return]  # The type of the column is not declared.
