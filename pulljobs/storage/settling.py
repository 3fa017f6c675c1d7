"""Statements that settle jobs: those that leave members of batches, and those for all jobs."""

from collections.abc import Mapping, Sequence
from functools import partial
from uuid import UUID

from pulljobs.engine import members
from pulljobs.engine.outcomes import Deliveries, deliver_parameters
from pulljobs.engine.sql import Params, Row
from pulljobs.storage import batches
from pulljobs.storage.statements import LOCK_SECONDS, brief, run, run_together


def run_finish(using: str, params: Params, jobs: int) -> list[Row]:
    """Finish that many jobs and return the rows of finish.sql."""
    finish = partial(run, using, params=params, seconds=LOCK_SECONDS)
    rows, batch_ids = members.finish(finish, jobs)
    batches.announce(using, batch_ids)
    return rows


def run_deliver(using: str, claims: Mapping[UUID, Deliveries]) -> list[tuple[Sequence[int], Row]]:
    """Run deliver.sql for each claim. Return the ids of the claims' jobs and the rows.

    If it leaves jobs of a claim, deliver_members.sql runs for all of that claim.
    """
    every = [deliver_parameters(token, deliveries) for token, deliveries in claims.items()]
    ids = [job_ids for job_ids, _runs in claims.values()]
    name = members.choose("deliver")
    rows = _deliver_each(using, name, every)
    if name != "deliver":
        return list(zip(ids, rows, strict=True))
    left = [number for number, row in enumerate(rows) if row.delivered is not None]
    more = _deliver_each(using, members.for_members(name), [every[number] for number in left])
    return [*zip(ids, rows, strict=True), *zip((ids[number] for number in left), more, strict=True)]


def _deliver_each(using: str, name: str, every: Sequence[Params]) -> list[Row]:
    if not every:
        return []
    rows = [row for [row] in run_together(using, name, every, seconds=LOCK_SECONDS)]
    if name != "deliver":
        batch_ids = frozenset(id for row in rows for id in row.batch_ids)
        if batch_ids:
            members.expect()
        batches.announce(using, batch_ids)
    return rows


def revive(using: str, params: Params) -> Row:
    """Run take.sql for a DEAD job, and note that its batch has a live member more."""
    with brief(using):
        [row] = run(using, "take", params)
        member = run(using, "revive_member", params) if row.lease_token else []
    batches.announce(using, {row.batch_id for row in member})
    return row
