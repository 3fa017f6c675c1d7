"""Signals to runs: sent in the sender's transaction, consumed by a wait, in their order."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from asgiref.sync import sync_to_async

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.full_queue import notify
from pulljobs.engine.sql import DATABASE_CHANNEL, Params, Row
from pulljobs.errors import RunEnded, UnknownRun
from pulljobs.models import ArchivedJob, Job
from pulljobs.outcome_texts import encoded
from pulljobs.states import State
from pulljobs.storage import listen
from pulljobs.storage.sessions import LOCK_SECONDS, LONGEST_SECONDS, behind_pooler, in_transaction
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief, call_on_commit, retrying
from pulljobs.workflows.replay import check_name

AT_ONCE: Final = 500
SWEPT_AGE: Final = timedelta(seconds=5)
"""Age of a signal from which the sweep wakes its run. Until then the sender does."""
LIVE: Final = (State.QUEUED, State.INFLIGHT)


def signal(
    run_id: int | str,
    name: str,
    payload: Any = None,
    dedupe_id: str | None = None,
    *,
    ignore_missing: bool = False,
) -> bool:
    """Send a signal to a run, in the caller's transaction. Return False if nothing was sent.

    A signal is kept until the run waits for `name` and consumes it, or ends. It is not sent if an
    earlier signal to the run had the same `dedupe_id`. Raise UnknownRun or RunEnded if the
    run does not exist or has ended, unless `ignore_missing` is set. Raise TypeError or ValueError
    if the payload is not JSON, or larger than `MAX_RESULT_BYTES`. A database error outside of a
    transaction leaves open whether it was sent: send it again, with the same `dedupe_id`.
    """
    check_name(name)
    if dedupe_id is not None:
        check_name(dedupe_id)
    using, number = settings().DATABASE, ids.find_number(run_id)
    params = {
        "run_id": number,
        "name": name,
        "payload": encoded(payload, "payload"),
        "dedupe_id": dedupe_id,
        "is_alone": is_alone(using),
        "database_channel": DATABASE_CHANNEL,
    }
    rows = notify(partial(_send, using, params))
    if rows is None:  # Nothing was written. Not alone, it sends no notification.
        params["is_alone"] = False
        rows = _send(using, params)
    if number is None or not rows or rows[0].state not in LIVE:
        if ignore_missing:
            return False
        error = _missing(using, run_id, number, rows[0].state if rows else None)
        error.add_note("If that does not matter to your code, pass ignore_missing=True.")
        raise error
    if rows[0].is_sent and not rows[0].is_woken:
        call_on_commit(using, partial(wake_one, using, number))
    if params["is_alone"]:
        run(using, "flush_commits", {}, seconds=LONGEST_SECONDS)
    return bool(rows[0].is_sent)


def _send(using: str, params: Params) -> list[Row]:
    return run(using, "send_signal", params, seconds=LONGEST_SECONDS, keeps_plan=True)


def is_alone(using: str) -> bool:
    """Return True if a signal may wake its run before the commit of the signal is on disk.

    That is faster, and safe: `signal` flushes afterwards, and all that the run writes comes later
    in the write-ahead log, so no crash of the server keeps the effect of a lost signal. The sender
    gets an error, because its connection is lost as well. Return False in a transaction of the
    caller, and behind a pooler, whose flush may reach a server that has restarted meanwhile.
    """
    return not (in_transaction(using) or behind_pooler(using))


async def asignal(
    run_id: int | str,
    name: str,
    payload: Any = None,
    dedupe_id: str | None = None,
    *,
    ignore_missing: bool = False,
) -> bool:
    """Send a signal from async code, in a transaction of its own. See `signal`."""
    send = partial(signal, ignore_missing=ignore_missing)
    return await sync_to_async(send)(run_id, name, payload, dedupe_id)


def wake(using: str, run_ids: Sequence[int]) -> None:
    """Make runs due whose signal was sent or whose children have ended. Others stay as they are."""
    retrying(using, partial(_wake_locked, using, sorted(set(run_ids))))


def wake_one(using: str, run_id: int) -> None:
    """Make a run due if it waits for a signal that was sent.

    One statement is enough if the run waits already, as it nearly always does. Otherwise, or if
    PostgreSQL's queue of notifications is full, this calls `wake`, which locks the job first.
    """
    params = {"run_ids": [run_id], "is_alone": True, "database_channel": DATABASE_CHANNEL}
    wake_up = partial(run, using, "wake_runs", params, seconds=LOCK_SECONDS, keeps_plan=True)
    if not notify(partial(retrying, using, wake_up)):
        wake(using, [run_id])


def _wake_locked(using: str, run_ids: list[int]) -> None:
    with brief(using, lock_seconds=LOCK_SECONDS):
        make_due(using, run_ids)


def make_due(using: str, run_ids: Sequence[int]) -> None:
    """Make runs due whose signal was sent or whose children ended, in the caller's transaction.

    A run that is about to suspend writes its job first, and looks for what it waits for afterwards.
    So this locks the jobs in any state. A run that is QUEUED already becomes due. The suspension
    of a run in flight waits for this transaction, and then sees the signal or the ended children.
    """
    run(using, "lock_runs", {"run_ids": run_ids})
    _make_locked_due(using, run_ids)


def _make_locked_due(using: str, run_ids: Sequence[int]) -> None:
    params = {"run_ids": run_ids, "is_alone": False, "database_channel": DATABASE_CHANNEL}
    rows = run(using, "wake_runs", params)
    listen.wake_on_commit(using, [row.consumer_id for row in rows])


def sweep_all(using: str) -> bool:
    """Wake runs of up to `AT_ONCE` new signals, for tests. Return True if there are such runs."""
    row = _find_new(using, timedelta(seconds=-1))
    wake(using, row.run_ids or [])
    return row.run_ids is not None


def sweep(using: str) -> bool:
    """Wake runs whose signals were committed by a process that crashed before it woke them.

    Signals of runs that other sessions have locked hold back no later signal. Return True if there
    may be more.
    """
    row = _find_new(using, SWEPT_AGE)
    while row.run_ids is not None:
        if retrying(using, partial(_wake_free, using, row.run_ids)):
            return row.last_id is not None
        if row.last_id is None:
            break
        row = _find_new(using, SWEPT_AGE, after=row.last_id)
    return False


def _find_new(using: str, age: timedelta, *, after: int = 0) -> Row:
    """Return runs not woken by signals older than `age`, and a signal id if more may follow it."""
    [row] = run(using, "new_signals", {"after": after, "wanted": AT_ONCE, "age": age})
    return row


def _wake_free(using: str, run_ids: list[int]) -> int:
    """Wake those runs whose jobs no other session has locked, and return their number.

    The signals of the others stay new, so the next sweep finds them.
    """
    with brief(using):
        free = [row.run_id for row in run(using, "lock_free_runs", {"run_ids": run_ids})]
        _make_locked_due(using, free)
    return len(free)


def find_live(run_id: int | str) -> int:
    """Return the id of a run that has not ended, as a number, or raise UnknownRun or RunEnded."""
    using, number = settings().DATABASE, ids.find_number(run_id)
    states = Job.objects.using(using).filter(pk=number or 0).values_list("state", flat=True)
    if number is None or (state := states.first()) not in LIVE:
        raise _missing(using, run_id, number, None if number is None else state)
    return number


def find_past_state(using: str, run_id: int) -> str | None:
    """Return the state of the last settlement of a job, or None if the archive has none."""
    past = ArchivedJob.objects.using(using).filter(job_id=run_id).order_by("id")
    return past.values_list("state", flat=True).last()


def _missing(
    using: str, run_id: int | str, number: int | None, state: str | None
) -> UnknownRun | RunEnded:
    if number is not None and state is None:
        state = find_past_state(using, number)
    if number is None or state is None:
        return UnknownRun(run_id)
    return RunEnded(ids.encode(number), state)
