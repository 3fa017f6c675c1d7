"""Statements that write outcomes, what ended jobs free, and the search for lost jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final
from uuid import UUID, uuid4

from pulljobs.engine import members
from pulljobs.engine.claiming.keyed import Key
from pulljobs.engine.claiming.limits import give_back
from pulljobs.engine.claiming.turns import give_back as give_back_to_keys
from pulljobs.engine.outcomes import (
    Deliveries,
    Held,
    Settlement,
    deliver_parameters,
    parameters,
    plain_deliveries,
)
from pulljobs.engine.sql import Params, Row
from pulljobs.states import Event, Reason, State
from pulljobs.storage import batches, keys, turns
from pulljobs.storage.limits import find_unstarted, with_members
from pulljobs.storage.rows import Finished
from pulljobs.storage.sessions import LOCK_SECONDS
from pulljobs.storage.statements import AliasSession, run, run_together
from pulljobs.storage.transactions import after_commit, brief

LEAST_OF_A_CLAIM: Final = 30
"""Number of jobs of a claim from which a statement for each claim is cheaper than one for all."""

_STATES = {state.value: state for state in State}
_USED_UP: Final = (Reason.RETRIES_EXHAUSTED, Reason.MAX_DELIVERIES, Reason.TIMED_OUT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Freed:
    """Keys, turns and limits that have room for further jobs, because jobs of a batch ended."""

    consumer_ids: set[int]
    grouped_ids: set[int]
    """Those of the consumers that are in a limit group."""
    keys: set[Key]
    key_holders: list[int]
    """Ids of the jobs that held the keys."""
    turns: set[Key]
    """Keys that take turns."""

    def free(self, using: str) -> frozenset[int]:
        """Free the keys, give turns, and return the ids of consumers that may claim more jobs."""
        keys.free(using, self.keys, self.key_holders)
        turns.free(using, self.turns)
        return with_members(using, self.consumer_ids, self.grouped_ids)


def settle(using: str, settlements: Sequence[Settlement]) -> Finished:
    """Write the outcomes of jobs, and free what they held. Lost jobs are missing in `states`."""
    claims = plain_deliveries(settlements)
    if claims is not None and len(claims) <= max(1, len(settlements) // LEAST_OF_A_CLAIM):
        return _deliver(using, claims)
    rows = _write_outcomes(using, settlements)
    states = {row.job_id: _STATES[row.state] for row in rows}
    released = {
        settlement.held.job_id
        for settlement in settlements
        if settlement.event is Event.RELEASE and settlement.delay is None
    }
    bounded = [row for row in rows if row.consumer_id is not None]
    keyed = [row for row in bounded if row.freed_key is not None]
    freed = _Freed(
        consumer_ids={row.consumer_id for row in bounded},
        grouped_ids={row.consumer_id for row in bounded if row.is_grouped},
        keys={(row.consumer_id, row.freed_key) for row in keyed},
        key_holders=[row.job_id for row in keyed],
        turns={(row.consumer_id, row.turn_key) for row in bounded if row.turn_key is not None},
    )
    roomier = freed.free(using)
    return Finished(states, [], {}, frozenset(released & states.keys()), roomier)


def _write_outcomes(using: str, settlements: Sequence[Settlement]) -> list[Row]:
    """Run finish.sql and return its rows. Give back tokens of released jobs that did not start."""
    params = parameters(settlements)
    if not (released := find_unstarted(settlements)):
        return _run_finish(using, params, len(settlements))
    with brief(using, lock_seconds=LOCK_SECONDS):
        rows = _run_finish(using, params, len(settlements))
        written = {row.job_id: row.turn_key for row in rows}  # Without jobs released before.
        given = [held for held in released if held.job_id in written]
        give_back(AliasSession(using), given)
        by_turn = [held for held in given if written[held.job_id] is not None]
        give_back_to_keys(AliasSession(using), by_turn)
    return rows


def _run_finish(using: str, params: Params, jobs: int) -> list[Row]:
    """Write the outcomes of `jobs` jobs. Return a row for each job whose outcome was written.

    Members of batches are left out by finish.sql and written by its variant.
    """
    finish = partial(run, using, params=params, seconds=LOCK_SECONDS, keeps_plan=True)
    rows, batch_ids = members.finish(finish, jobs)
    batches.announce(using, batch_ids)
    return rows


def _deliver(using: str, claims: Mapping[UUID, Deliveries]) -> Finished:
    """Deliver jobs of claims, given by lease token."""
    every = _run_deliver(using, claims)
    states: dict[int, State] = {}
    for ids, row in every:
        states |= dict.fromkeys(ids if row.delivered is None else row.delivered, State.DELIVERED)
    bounded = [row for _ids, row in every if row.consumer_id is not None]
    freed = _Freed(
        consumer_ids={row.consumer_id for row in bounded},
        grouped_ids={row.consumer_id for row in bounded if row.is_grouped},
        keys={(row.consumer_id, key) for row in bounded for key in row.freed_keys or ()},
        key_holders=[job_id for row in bounded for job_id in row.keyed_ids or ()],
        turns={(row.consumer_id, key) for row in bounded for key in row.turn_keys or ()},
    )
    return Finished(states, [], {}, roomier=freed.free(using))


def _run_deliver(using: str, claims: Mapping[UUID, Deliveries]) -> list[members.Delivered]:
    """Run deliver.sql for each claim. Return pairs (job ids, row of deliver.sql)."""
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


def prepare(using: str) -> None:
    """Run the settling statements for no job, so that the server plans them in advance."""
    _run_deliver(using, {uuid4(): ([], [])})
    _run_finish(using, parameters([]), 0)


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
    error prevents the search for repeats, they are `locked`, so that callers try again. In the
    caller's transaction, the error is raised.
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
