"""Functions that change the state of jobs: claim by id, finish, reap, kill and others.

Nothing else changes it, apart from the claims of `pulljobs.engine.claiming` and the publishes of
`pulljobs.engine.key_bounds`, for which older jobs of a key are killed.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from django.db import (
    DatabaseError,
    InternalError,
    OperationalError,
    ProgrammingError,
    transaction,
)
from psycopg.errors import DataCorrupted, IndexCorrupted, RaiseException

from pulljobs.engine.adapters import TOO_MUCH
from pulljobs.engine.encodings import array, integer_array
from pulljobs.engine.outcomes import Held, Settlement, expire
from pulljobs.engine.sql import Params, Row
from pulljobs.models import Job
from pulljobs.states import TRANSITIONS, Event, State
from pulljobs.storage import batches, keys, listen, settling, turns
from pulljobs.storage.backlog import count_jobs
from pulljobs.storage.limits import find_locked, with_members
from pulljobs.storage.plans import ends_transaction, keeping_plans
from pulljobs.storage.rows import Finished, NotYet, ReachedLease, Refusal, Stats, Taken
from pulljobs.storage.sessions import LOCK_SECONDS, LONGEST_SECONDS, in_transaction
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief, is_wait, retrying

logger = logging.getLogger("pulljobs.storage")

REFUSALS: Final = (*TOO_MUCH, RaiseException, DataCorrupted, IndexCorrupted)
"""Causes of errors that concern one value or row, such as those that triggers raise."""


def take(
    using: str,
    consumer_id: int,
    job_id: int,
    *,
    source: State,
    lease_duration: timedelta,
    max_lease: timedelta,
    via: str,
    node_id: UUID | None = None,
    incremental_timeout: timedelta | None = None,
    guarded: bool = False,
) -> Taken | Refusal | NotYet | None:
    """Claim a job by its id: a QUEUED one, or a DEAD one (revive), as `source` says.

    Return the new lease, or why the job can't be claimed now, or None if it is not in the state
    `source` or not of this consumer. `guarded` says that the caller has checked the consumer's
    limits under their locks. Renewals end after `max_lease`. `incremental_timeout` is part of
    `lease_duration`, and is stored with the job.
    """
    params = {
        "consumer_id": consumer_id,
        "job_id": job_id,
        "source": source,
        "node_id": node_id,
        "via": via,
        "lease_duration": lease_duration,
        "max_lease": max_lease,
        "incremental_timeout": incremental_timeout,
        "guarded": guarded,
    }
    row = settling.revive(using, params) if source == State.DEAD else run(using, "take", params)[0]
    if row.lease_token:
        return Taken(row.lease_token, row.leased_until)
    if row.throttle_seconds is not None:
        return NotYet(Refusal.THROTTLED, timedelta(seconds=row.throttle_seconds))
    return None if row.refusal is None else Refusal(row.refusal)


def finish(using: str, settlements: Sequence[Settlement], *, skip_locked: bool = False) -> Finished:
    """Write the outcomes of jobs, at most one for each.

    If the values of an outcome can't be written, the others are: the batch is halved until the
    faulty outcome is alone, which gets into `refused`. A row that another transaction keeps locked
    for more than `LOCK_SECONDS` delays only its own outcome: the job is in `locked`, and the other
    outcomes are written. With `skip_locked` it waits for no job. Inside the caller's transaction
    the wait is bounded by `LONGEST_SECONDS` and ends with an OperationalError.
    """
    if not settlements:
        return Finished({}, [], {})
    try:
        if skip_locked:
            return finish_free(using, settlements)
        finished = retrying(using, lambda: _finish_apart(using, settlements))
    except (DatabaseError, ValueError, TypeError) as error:
        if is_wait(error) and not in_transaction(using) and not skip_locked:
            return finish(using, settlements, skip_locked=True)
        if not _is_of_a_row(error):
            raise
        return _write_halves(partial(finish, using, skip_locked=skip_locked), settlements, error)
    return settling.find_lost(using, settlements, finished)


def _write_halves(
    write: Callable[[Sequence[Settlement]], Finished],
    settlements: Sequence[Settlement],
    error: Exception,
) -> Finished:
    """Write the halves of a batch whose write failed, or refuse its only outcome with `error`."""
    if len(settlements) == 1:
        # The first line only: details may quote what was to be written.
        text = str(error).partition("\n")[0]
        return Finished({}, [], {settlements[0].held.job_id: text})
    middle = len(settlements) // 2
    return write(settlements[:middle]) | write(settlements[middle:])


def finish_free(using: str, settlements: Sequence[Settlement]) -> Finished:
    """Write the outcomes of those jobs that no other transaction has locked.

    The others are in `locked`, as are released jobs whose rate is locked. It is one transaction: a
    database error leaves all unwritten.
    """

    def work() -> Finished:
        with brief(using, lock_seconds=LOCK_SECONDS), keeping_plans(using):
            return settling.find_lost(using, settlements, _finish_unlocked(using, settlements))

    return retrying(using, work)


def _is_of_a_row(error: Exception) -> bool:
    """Return True if an outcome or its row caused the error, not the server or connection."""
    if isinstance(error.__cause__, REFUSALS):
        return True
    # A read-only database raises InternalError.
    return not isinstance(error, OperationalError | ProgrammingError | InternalError)


def _finish_apart(using: str, settlements: Sequence[Settlement]) -> Finished:
    """Write outcomes. A savepoint keeps a caller's transaction that goes on usable after errors."""
    if not in_transaction(using) or ends_transaction(using):
        return settling.settle(using, settlements)
    with transaction.atomic(using=using):
        return settling.settle(using, settlements)


def _finish_unlocked(using: str, settlements: Sequence[Settlement]) -> Finished:
    """Write the outcomes of jobs that can be locked without waiting. The others are `locked`."""
    params = {
        "job_ids": integer_array(each.held.job_id for each in settlements),
        "lease_tokens": array({each.held.lease_token for each in settlements}),
    }
    locked = {row.id for row in run(using, "locked_jobs", params)}
    locked |= find_locked(using, settlements)
    free = [each for each in settlements if each.held.job_id not in locked]
    finished = settling.settle(using, free) if free else Finished({}, [], {})
    return replace(finished, locked=frozenset(locked))


def reap(using: str, leases: int) -> Finished | None:
    """Expire the jobs of up to `leases` leases that have ended. Return None if it finds none."""

    def work() -> Finished | None:
        with brief(using):
            over = run(using, "expired", {"leases": leases}, kind=ReachedLease)
            return _give_back(using, over, _expired) if over else None

    return retrying(using, work)


def abandon(
    using: str, node_id: UUID, started: frozenset[int], *, but: frozenset[UUID] = frozenset()
) -> Finished | None:
    """Take all jobs from a node, except those that it holds under the lease tokens in `but`.

    Jobs in `started` expire, which counts a retry. The others are released. Jobs that another
    transaction has locked are left to the reaper, as are those that give tokens back to a rate that
    stays locked for more than `LOCK_SECONDS`. Return None if the node had no other lease.
    """

    def work(*, skip_locked: bool) -> Finished | None:
        with brief(using, lock_seconds=LOCK_SECONDS):
            leases = run(using, "leases_of_node", {"node_id": node_id}, kind=ReachedLease)
            over = [lease for lease in leases if lease.lease_token not in but]
            return _give_back(using, over, blame, started, skip_locked) if over else None

    def blame(lease: ReachedLease, job_id: int) -> Settlement:
        if job_id in started:
            return _expired(lease._replace(running_ids=started), job_id)
        return Settlement(Held(job_id, lease.lease_token), Event.RELEASE)

    try:
        return retrying(using, partial(work, skip_locked=False))
    except OperationalError as error:
        if not is_wait(error):
            raise
        return retrying(using, partial(work, skip_locked=True))


def _give_back(
    using: str,
    leases: Sequence[ReachedLease],
    settle: Callable[[ReachedLease, int], Settlement],
    started: frozenset[int] | None = None,
    skip_locked: bool = False,
) -> Finished:
    """Take the jobs of leases from their holders, with the outcome that `settle` makes for each.

    A lease of which other transactions have locked some jobs, or with `skip_locked` the rates to
    which these give tokens back, stays for a later pass of the reaper. So does one of which a job
    can't be written.
    `started` are the jobs that ran when their node ended. If None, the node's last report counts.
    """
    settlements = [settle(lease, job_id) for lease in leases for job_id in lease.job_ids]
    locked = find_locked(using, settlements) if skip_locked else set()
    free = [each for each in settlements if each.held.job_id not in locked]
    finished = _write_in_parts(using, free) if free else Finished({}, [], {})
    left = {*locked, *finished.refused}
    whole = {each.lease_id for each in leases if each.is_whole and left.isdisjoint(each.job_ids)}
    run(using, "end_leases", {"lease_ids": list(whole)})
    if rest := [lease.lease_id for lease in leases if lease.lease_id not in whole]:
        running = None if started is None else list(started)
        run(using, "postpone_leases", {"lease_ids": rest, "running_ids": running})
    return finished


def _write_in_parts(using: str, settlements: Sequence[Settlement]) -> Finished:
    """Write outcomes in the open transaction. Those that can't be written get into `refused`."""
    try:
        return _finish_apart(using, settlements)
    except (DatabaseError, ValueError, TypeError) as error:
        if not _is_of_a_row(error):
            raise
        return _write_halves(partial(_write_in_parts, using), settlements, error)


def _expired(lease: ReachedLease, job_id: int) -> Settlement:
    return expire(Held(job_id, lease.lease_token), lease.running_ids, lease.via)


def kill(
    using: str,
    job_ids: Sequence[int],
    *,
    reason: str,
    error: str | None = None,
    states: Collection[State] = TRANSITIONS[Event.KILL].sources,
) -> dict[int, bool]:
    """Kill the jobs that are in `states`. Return for each killed job True if it was in flight."""
    params = {
        "job_ids": list(job_ids),
        "states": sorted(states),
        "reason": reason,
        "error": error,
    }
    rows = retrying(using, lambda: _operate(using, "kill", params))
    keys.free(using, {(row.consumer_id, row.key) for row in rows if row.key is not None})
    held = [row for row in rows if row.was_held and row.turn_key is not None]
    turns.free(using, {(row.consumer_id, row.turn_key) for row in held})
    # Some jobs freed their keys. Others leave room for one more job in flight.
    waking = {row.consumer_id for row in rows if row.was_held or row.key is not None}
    listen.wake_on_commit(using, with_members(using, waking, waking))
    batches.announce(using, {row.batch_id for row in rows})
    return {row.job_id: row.was_held for row in rows}


def _operate(using: str, name: str, params: Params) -> list[Row]:
    """Run a statement of an operator, which waits for locked jobs up to a minute in all."""
    return run(using, name, params, seconds=LONGEST_SECONDS)


def wake_on_commit(using: str, job_ids: Collection[int]) -> None:
    """Wake the waiters of the consumers of these jobs, which are queued again, after the commit."""

    def find() -> Collection[int]:
        rows = Job.objects.using(using).filter(id__in=job_ids)
        return set(rows.values_list("consumer_id", flat=True).distinct())

    if job_ids:
        listen.wake_found_on_commit(using, find)


def redrive(using: str, job_ids: Sequence[int]) -> dict[int, int]:
    """Redrive those of the jobs that are DEAD, and return their consumer ids by job id."""
    rows = retrying(using, lambda: _operate(using, "redrive", {"job_ids": list(job_ids)}))
    batches.announce(using, {row.batch_id for row in rows})
    return {row.job_id: row.consumer_id for row in rows}


def reschedule(using: str, job_ids: Sequence[int], *, at: datetime | None) -> dict[int, int]:
    """Make QUEUED jobs claimable from `at` on, None for now, unless they are blocked.

    Return the consumer ids of the changed jobs by job id.
    """
    params = {"job_ids": list(job_ids), "at": at}
    rows = retrying(using, lambda: _operate(using, "reschedule", params))
    return {row.job_id: row.consumer_id for row in rows}


def delete(using: str, job_ids: Sequence[int]) -> list[int]:
    """Delete those of the jobs that are DEAD, and return their ids."""
    rows = retrying(using, lambda: _operate(using, "delete", {"job_ids": list(job_ids)}))
    return [row.job_id for row in rows]


def stats(using: str, consumer_id: int, cap: int = 10_000) -> Stats:
    """Return the counts of a consumer's live jobs from one snapshot, none above `cap`."""
    [row] = count_jobs(using, [consumer_id], cap)
    oldest = row.oldest_ready_at
    seconds = None if oldest is None else (row.now - oldest).total_seconds()
    return Stats(row.ready, row.delayed, row.in_flight, row.dead, seconds, row.blocked)
