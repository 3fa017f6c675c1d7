"""Settlement of single jobs by a handler, and of a whole batch by its stream.

    from pyspark_pulljobs import settling

    settling.reject(dsn, [(row.job_id, row.lease_token)], "no such customer")

A handler settles the jobs that failed. The ack of the stream delivers the others after the batch.
`retry`, `reject` and `settle` write in one transaction. If an outcome can't be written, they split
the jobs in halves until that job is alone, and retry it. Jobs whose lease was lost are not changed.
The result has the new states of the settled jobs only.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import psycopg

from pulljobs.engine import members, outcomes
from pulljobs.engine.adapters import TOO_MUCH
from pulljobs.engine.claiming import keyed, limits, turns
from pulljobs.engine.claiming.keyed import Key
from pulljobs.engine.encodings import array, integer_array
from pulljobs.engine.full_queue import notify
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.engine.sql import DATABASE_CHANNEL, Params, Row
from pulljobs.engine.telemetry import JobsFinished, emit
from pulljobs.states import Event, State
from pyspark_pulljobs.database_session import Session, open_session

MAX_ERROR_CHARS: Final = 8_000
Job = tuple[int, str | UUID]
"""Columns `job_id` and `lease_token` of a row of a stream."""


class Settled(NamedTuple):
    """Jobs whose outcomes were written, and consumers of which other jobs may be claimed now."""

    states: Counter[str]
    """Numbers of jobs by their new state."""
    roomier: frozenset[int]
    """Ids of the consumers of which other jobs may be claimed now."""
    grouped: frozenset[int]
    """Ids of those consumers in `roomier` that share their limits with a limit group."""

    @property
    def jobs(self) -> int:
        return self.states.total()


def retry(
    dsn: str, jobs: Iterable[Job], error: str, *, after: timedelta | None = None
) -> dict[int, State]:
    """Retry the jobs after a delay, and return their new states by id.

    Jobs whose lease was lost are left out. Without `after`, the delay is that of the consumer. A
    job without retries left becomes DEAD.
    """
    return settle(
        dsn, [outcomes.retry(held, to_error_text(error), after=after) for held in _to_held(jobs)]
    )


def reject(dsn: str, jobs: Iterable[Job], error: str) -> dict[int, State]:
    """Reject the jobs, which become DEAD with this error, and return their new states by id.

    Jobs whose lease was lost are left out.
    """
    return settle(dsn, [outcomes.reject(held, to_error_text(error)) for held in _to_held(jobs)])


def settle(dsn: str, settlements: Sequence[Settlement]) -> dict[int, State]:
    """Write an outcome for each job. Return the new states by id, without lost jobs."""
    if not settlements:
        return {}
    with open_session(dsn) as session:
        rows = _settle(session, settlements)
    return {row.job_id: State(row.state) for row in rows}


def retry_unwritable(held: Held, error: Exception) -> Settlement:
    """Return a retry, in place of an outcome that can't be written because of `error`.

    The job's error quotes only the first line of `error`: further lines may quote the result.
    """
    reason = str(error).partition("\n")[0]
    return outcomes.retry(held, to_error_text(f"Its outcome can't be written: {reason}"))


def end_batch(
    session: Session, token: UUID, job_ids: Sequence[int], event: Event, error: str | None = None
) -> list[Row]:
    """Apply `event` to the jobs that a batch still holds. Return a row of finish.sql for each.

    It joins the current transaction. After the commit, the caller passes `summarize(rows)` to
    `emit_and_notify`.
    """
    count = len(job_ids)
    nulls = _repeat("NULL", count)
    params = {
        "job_ids": "{" + ",".join(map(str, job_ids)) + "}",
        "lease_tokens": _repeat(token.hex, count),
        "events": _repeat(event, count),
        "reasons": nulls,
        "delays": nulls,
        "errors": nulls if error is None else array([to_error_text(error)] * count),
        "results": nulls,
        "started": _repeat("f", count) if event is Event.EXPIRE else nulls,
        "max_retries": "{}",
        "run_clock": 0.0,  # Spark does not report runs.
        "run_begins": "{}",
        "run_seconds": "{}",
    }
    rows = finish(session, params, count)
    if event is Event.RELEASE:
        limits.give_back(session, [Held(row.job_id, token) for row in rows])
        by_turn = [Held(row.job_id, token) for row in rows if row.turn_key is not None]
        turns.give_back(session, by_turn)
    return rows


def deliver_batch(session: Session, token: UUID, job_ids: Sequence[int]) -> Settled:
    """Deliver the jobs that a batch still holds, in the current transaction.

    After the commit, the caller passes the result to `emit_and_notify`.
    """
    params = {
        "lease_token": token,
        "job_ids": integer_array(sorted(job_ids)),
        "run_clock": 0.0,  # Spark does not report runs.
        "run_begins": "{}",
        "run_seconds": "{}",
    }
    delivered, _batch_ids = members.deliver(partial(_run_each, session), [(job_ids, params)])
    rows = [row for _job_ids, row in delivered]
    for row in rows:
        _free_delivered(session, row)
    jobs = sum(len(job_ids) if row.delivered is None else len(row.delivered) for row in rows)
    return Settled(
        Counter({State.DELIVERED: jobs}),
        frozenset(row.consumer_id for row in rows) - {None},
        frozenset(row.consumer_id for row in rows if row.is_grouped),
    )


def _run_each(session: Session, name: str, every: Sequence[Params]) -> list[Row]:
    return [row for params in every for row in session.run(name, params)]


def _free_delivered(session: Session, row: Row) -> None:
    """Let jobs be claimed that waited for the keys in `row`, the result of a delivery."""
    freed = {(row.consumer_id, key) for key in row.freed_keys or ()}
    turned = {(row.consumer_id, key) for key in row.turn_keys or ()}
    _free(session, freed, row.keyed_ids or (), turned)


def summarize(rows: Sequence[Row]) -> Settled:
    """Return the jobs and consumers of these rows of finish.sql, for `emit_and_notify`."""
    return Settled(
        Counter(row.state for row in rows),
        frozenset(row.consumer_id for row in rows) - {None},
        frozenset(row.consumer_id for row in rows if row.is_grouped),
    )


def emit_and_notify(session: Session, settled: Settled) -> None:
    """Emit telemetry of the written outcomes, and notify waiters of consumers that may claim more.

    The caller has committed.
    """
    if settled.jobs:
        emit(JobsFinished(Counter({("", state): jobs for state, jobs in settled.states.items()})))
    roomier = settled.roomier
    if settled.grouped:
        params = {"consumer_ids": sorted(settled.grouped)}
        roomier |= {row.id for row in session.run("members", params)}
    if roomier:
        notified = {"consumer_ids": sorted(roomier), "database_channel": DATABASE_CHANNEL}
        notify(lambda: session.run("notify", notified))


def to_error_text(error: str) -> str:
    """Return the text in a form that PostgreSQL can store, cut to `MAX_ERROR_CHARS`."""
    text = error.replace("\0", "").encode("utf-8", "backslashreplace").decode()
    return text[:MAX_ERROR_CHARS]


def _settle(session: Session, settlements: Sequence[Settlement]) -> list[Row]:
    try:
        with session.atomic():
            rows = finish(session, outcomes.parameters(settlements), len(settlements))
            _count_on_batches(session, settlements, {row.job_id for row in rows})
    except (psycopg.DataError, *TOO_MUCH) as error:
        if len(settlements) > 1:
            middle = len(settlements) // 2
            left, right = settlements[:middle], settlements[middle:]
            return _settle(session, left) + _settle(session, right)
        [settlement] = settlements
        if settlement.delay is None and settlement.result is None:
            raise  # Only a delay or a result can be unwritable.
        return _settle(session, [retry_unwritable(settlement.held, error)])
    emit_and_notify(session, summarize(rows))
    return rows


def finish(session: Session, params: Mapping[str, Any], jobs: int) -> list[Row]:
    """Write the outcomes of `jobs` jobs in the current transaction, and free keys that they held.

    `params` are those of finish.sql. Return its rows, one for each job that was not lost. If a job
    is a member of a batch (`workflows`), a worker finds out later whether that batch has ended.
    """
    rows, _batch_ids = members.finish(partial(session.run, params=params), jobs)
    freed = [row for row in rows if row.freed_key is not None and row.consumer_id is not None]
    turned = [row for row in rows if row.turn_key is not None and row.consumer_id is not None]
    _free(
        session,
        {(row.consumer_id, row.freed_key) for row in freed},
        [row.job_id for row in freed],
        {(row.consumer_id, row.turn_key) for row in turned},
    )
    return rows


def _free(session: Session, freed: set[Key], let_go: Sequence[int], turned: set[Key]) -> None:
    """Let the next jobs of the keys in `freed` and in `turned` be claimed.

    `freed` are keys of exclusive consumers, which the jobs with ids in `let_go` held. `turned` are
    keys that take turns, and of which fewer jobs are in flight now.
    """
    if freed:
        keyed.free_keys(session, keyed.lock_keys(session, freed), let_go)
    if turned:
        turns.free_turns(session, turned)


def _count_on_batches(session: Session, settlements: Sequence[Settlement], done: set[int]) -> None:
    """Add the jobs with ids in `done` to the counts of acked or failed jobs of their batches.

    Otherwise the ack would count them as lost.
    """
    acked: Counter[UUID] = Counter()
    failed: Counter[UUID] = Counter()
    for settlement in settlements:
        held, is_delivered = settlement.held, settlement.event is Event.DELIVER
        if held.job_id in done:
            (acked if is_delivered else failed)[held.lease_token] += 1
    for token in sorted({*acked, *failed}):
        params = {"lease_token": token, "acked": acked[token], "failed": failed[token]}
        session.run("count_of_batch", params)


def _to_held(jobs: Iterable[Job]) -> list[Held]:
    return [Held(int(job_id), UUID(str(lease_token))) for job_id, lease_token in jobs]


def _repeat(text: str, count: int) -> str:
    """Return an array literal of one repeated value, without encoding each element."""
    return "{" + ",".join([text] * count) + "}"
