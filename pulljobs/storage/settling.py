"""Statements that write outcomes, for members of batches as well, and search for lost jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final
from uuid import UUID

from pulljobs.engine import members
from pulljobs.engine.outcomes import Deliveries, Held, Settlement, deliver_parameters
from pulljobs.engine.sql import Params, Row
from pulljobs.states import Event, Reason, State
from pulljobs.storage import batches
from pulljobs.storage.rows import Finished
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import run, run_together
from pulljobs.storage.transactions import after_commit, brief

_USED_UP: Final = (Reason.RETRIES_EXHAUSTED, Reason.MAX_DELIVERIES, Reason.TIMED_OUT)


def run_finish(using: str, params: Params, jobs: int) -> list[Row]:
    """Write the outcomes of `jobs` jobs. Return a row for each job whose outcome was written.

    For members of batches, a variant of finish.sql runs.
    """
    finish = partial(run, using, params=params, seconds=LOCK_SECONDS, keeps_plan=True)
    rows, batch_ids = members.finish(finish, jobs)
    batches.announce(using, batch_ids)
    return rows


def run_deliver(using: str, claims: Mapping[UUID, Deliveries]) -> list[members.Delivered]:
    """Deliver jobs of claims, given by lease token. Return pairs (job ids, row of deliver.sql)."""
    # Jobs are then locked mostly in the order of their ids, as a kill locks them: no deadlock.
    ordered = sorted(claims.items(), key=lambda claim: min(claim[1][0], default=0))
    every = [
        (deliveries[0], deliver_parameters(token, deliveries)) for token, deliveries in ordered
    ]
    rows, batch_ids = members.deliver(partial(_run_each, using), every)
    batches.announce(using, batch_ids)
    return rows


def _run_each(using: str, name: str, every: Sequence[Params]) -> list[Row]:
    return [row for [row] in run_together(using, name, every, seconds=LOCK_SECONDS)]


def revive(using: str, params: Params) -> Row:
    """Run take.sql for a DEAD job and return its row.

    If the job is claimed, its batch has one more member that has not ended.
    """
    with brief(using):
        [row] = run(using, "take", params)
        member = run(using, "revive_member", params) if row.lease_token else []
    batches.announce(using, {row.batch_id for row in member})
    return row


def find_lost(using: str, settlements: Sequence[Settlement], finished: Finished) -> Finished:
    """Return `finished` with the jobs of `settlements` that are missing in it.

    Some were settled before by the same report (`repeated`), the others are `lost`. If a database
    error prevents the search for repeats, they are `locked`, so that callers try again.
    """
    states = finished.states
    if len(states) == len(settlements):
        return finished
    known = states.keys() | finished.locked
    missing = [settlement.held for settlement in settlements if settlement.held.job_id not in known]
    before: dict[int, State] = {}
    unknown = {held.job_id for held in missing}
    with after_commit(using, "the search for outcomes that were repeated"):
        before |= _settled_before(using, missing, settlements)
        unknown.clear()
    return replace(
        finished,
        states=states | before,
        lost=[held.job_id for held in missing if held.job_id not in before.keys() | unknown],
        repeated=frozenset(before),
        locked=finished.locked | unknown,
    )


def _settled_before(
    using: str, missing: Sequence[Held], settlements: Sequence[Settlement]
) -> dict[int, State]:
    """Return by id the states of jobs that the archive has with the same outcome and lease token.

    Their report was a repeat.
    """
    if not missing:
        return {}
    params = {
        "job_ids": [job.job_id for job in missing],
        "lease_tokens": [job.lease_token for job in missing],
    }
    asked = {settlement.held.job_id: settlement.event for settlement in settlements}
    return {
        row.job_id: State(row.state)
        for row in run(using, "settled", params)
        if asked[row.job_id] == _event_of(row.state, row.reason)
    }


def _event_of(state: str, reason: str | None) -> Event:
    """Return the outcome after which a job has this final state and reason."""
    if state == State.DELIVERED:
        return Event.DELIVER
    return Event.RETRY if reason in _USED_UP else Event.REJECT
