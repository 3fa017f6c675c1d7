"""Settling jobs of a batch: all of it, or single ones from a handler.

    from pyspark_pulljobs import settling
    settling.reject(dsn, [(row.job_id, row.lease)], "no such customer")

A handler says so of jobs that failed; all others of its batch are delivered once Spark is done with
it. Each call is one transaction, unless something can't be written: then it is halved until that
job is alone, which is tried again. What is not held any more is left alone: the calls return the
states of those that were.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

import psycopg

from pulljobs.engine import outcomes
from pulljobs.engine.adapters import TOO_MUCH
from pulljobs.engine.claiming import keyed
from pulljobs.engine.encodings import array
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.engine.sql import DATABASE_CHANNEL, Row
from pulljobs.engine.telemetry import JobsFinished, emit
from pulljobs.states import Event, State
from pyspark_pulljobs.session import Session, opened

MAX_ERROR_CHARS: Final = 8_000
Job = tuple[int, str | UUID]
"""The columns `job_id` and `lease` of a row."""


def retry(
    dsn: str, jobs: Iterable[Job], error: str, *, after: timedelta | None = None
) -> dict[int, State]:
    """Try them again, after the consumer's own delay or after the given one."""
    return settle(dsn, [outcomes.retry(held, text_of(error), after=after) for held in _held(jobs)])


def reject(dsn: str, jobs: Iterable[Job], error: str) -> dict[int, State]:
    """Give them up: DEAD, with this text as their error."""
    return settle(dsn, [outcomes.reject(held, text_of(error)) for held in _held(jobs)])


def settle(dsn: str, settlements: Sequence[Settlement]) -> dict[int, State]:
    """Each by its own outcome."""
    if not settlements:
        return {}
    with opened(dsn) as session:
        rows = _settled(session, settlements)
    return {job_id: State(state) for job_id, state, *_ in rows}


def unwritable(held: Held, error: Exception) -> Settlement:
    """In place of what can't be written; the first line only, for details may quote it."""
    told = str(error).partition("\n")[0]
    return outcomes.retry(held, text_of(f"Its outcome can't be written: {told}"))


def end_batch(
    session: Session, token: UUID, job_ids: Sequence[int], event: Event, error: str | None = None
) -> list[Row]:
    """All that is held of a batch, in the transaction there is; the rows of finish.sql."""
    count = len(job_ids)
    nulls = _repeated("NULL", count)
    params = {
        "job_ids": "{" + ",".join(map(str, job_ids)) + "}",
        "lease_tokens": _repeated(token.hex, count),
        "events": _repeated(event, count),
        "reasons": nulls,
        "delays": nulls,
        "errors": nulls if error is None else array([text_of(error)] * count),
        "results": nulls,
        "started": _repeated("f", count) if event is Event.EXPIRE else nulls,
    }
    return _finish(session, params)


def tell(session: Session, rows: Sequence[Row]) -> None:
    """After the commit: those who record, and those who wait for room."""
    _tell(session, rows)


def text_of(error: str) -> str:
    """As the database takes it."""
    text = error.replace("\0", "").encode("utf-8", "backslashreplace").decode()
    return text[:MAX_ERROR_CHARS]


def _settled(session: Session, settlements: Sequence[Settlement]) -> list[Row]:
    try:
        with session.atomic():
            rows = _finish(session, outcomes.parameters(settlements))
            _count(session, settlements, {row.job_id for row in rows})
    except (psycopg.DataError, *TOO_MUCH) as error:
        if len(settlements) > 1:
            middle = len(settlements) // 2
            left, right = settlements[:middle], settlements[middle:]
            return _settled(session, left) + _settled(session, right)
        [(held, _event, _reason, delay, _error, result, _started)] = settlements
        if delay is None and result is None:
            raise  # in these nothing else can be refused
        return _settled(session, [unwritable(held, error)])
    _tell(session, rows)
    return rows


def _finish(session: Session, params: Mapping[str, Any]) -> list[Row]:
    rows = session.run("finish", params)
    freed = [row for row in rows if row.freed_key is not None and row.consumer_id is not None]
    if freed:
        locked = keyed.lock_keys(session, {(row.consumer_id, row.freed_key) for row in freed})
        keyed.free_keys(session, locked, [row.job_id for row in freed])
    return rows


def _count(session: Session, settlements: Sequence[Settlement], done: set[int]) -> None:
    """On the rows of their batches, so that none is taken for lost."""
    acked: Counter[UUID] = Counter()
    failed: Counter[UUID] = Counter()
    for one in settlements:
        if one.held.job_id in done:
            (acked if one.event is Event.DELIVER else failed)[one.held.lease_token] += 1
    for token in sorted({*acked, *failed}):
        params = {"lease_token": token, "acked": acked[token], "failed": failed[token]}
        session.run("count_of_batch", params)


def _tell(session: Session, rows: Sequence[Row]) -> None:
    if rows:
        emit(JobsFinished(Counter(("", row.state) for row in rows)))
    if roomier := sorted({row.consumer_id for row in rows} - {None}):
        params = {"consumer_ids": roomier, "database_channel": DATABASE_CHANNEL}
        session.run("notify", params)


def _held(jobs: Iterable[Job]) -> list[Held]:
    return [Held(int(job_id), UUID(str(lease))) for job_id, lease in jobs]


def _repeated(text: str, count: int) -> str:
    """An array of one value, which is quicker than from its elements."""
    return "{" + ",".join([text] * count) + "}"
