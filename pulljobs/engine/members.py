"""Choice between the statements that leave members of batches and those that settle them as well.

A process that settles no member runs the statements that know no batches. It tries jobs that they
leave with the other statements, and then expects members for a while.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pulljobs.engine.sql import Params, Row
from pulljobs.states import State

EXPECTED_SECONDS: Final = 60.0
Claim = tuple[Sequence[int], Params]
"""Ids of the jobs of a claim, and the parameters of deliver.sql for them."""
Delivered = tuple[Sequence[int], Row]
"""Ids of the jobs of a claim, and the row of the statement that delivered them."""
RunEach = Callable[[str, Sequence[Params]], list[Row]]
"""Function that runs the statement of that name for each of the parameters, with a row for each."""
_until = float("-inf")


def choose(name: str) -> str:
    """Return the name of the statement to run: `name`, or that for members if some are expected."""
    return for_members(name) if time.monotonic() < _until else name


def for_one(name: str) -> str:
    """Return the name of the statement to run for a single job where `choose` returned `name`."""
    return "deliver_member" if name == "deliver_members" else name


def for_members(name: str) -> str:
    """Return the name of the statement that settles members of batches as well."""
    return f"{name}_members"


def expect() -> None:
    """Expect members from now on, because one was settled."""
    global _until
    _until = time.monotonic() + EXPECTED_SECONDS


def finish(run: Callable[[str], list[Row]], jobs: int) -> tuple[list[Row], frozenset[int]]:
    """Finish jobs, and return the rows of finish.sql and the batches whose members ended.

    `run` runs the statement of that name with the parameters of the jobs, whose number is `jobs`.
    If finish.sql leaves some, finish_members.sql runs for all, and finds only those.
    """
    if (name := choose("finish")) != "finish":
        rows = run(name)
        return rows, note_ended(rows)
    rows = run(name)
    if len(rows) == jobs:
        return rows, frozenset()
    left = run(for_members(name))
    return rows + left, note_ended(left)


def deliver(run: RunEach, claims: Sequence[Claim]) -> tuple[list[Delivered], frozenset[int]]:
    """Deliver jobs of claims. Return rows of deliver.sql, and batches whose members ended.

    If deliver.sql leaves jobs of a claim, deliver_members.sql runs for all of that claim, which has
    two rows then. A process that expects members runs that at once, or deliver_member.sql for a
    single job.
    """
    if (name := choose("deliver")) != "deliver":
        is_one = len(claims) == 1 == len(claims[0][0])
        rows = _deliver_each(run, for_one(name) if is_one else name, claims)
        return rows, _note_delivered(rows)
    rows = _deliver_each(run, name, claims)
    pairs = zip(claims, rows, strict=True)
    left = [claim for claim, (_ids, row) in pairs if row.delivered is not None]
    more = _deliver_each(run, for_members(name), left) if left else []
    return rows + more, _note_delivered(more)


def _deliver_each(run: RunEach, name: str, claims: Sequence[Claim]) -> list[Delivered]:
    rows = run(name, [params for _job_ids, params in claims])
    return [(job_ids, row) for (job_ids, _), row in zip(claims, rows, strict=True)]


def _note_delivered(delivered: Iterable[Delivered]) -> frozenset[int]:
    batch_ids = frozenset(batch_id for _job_ids, row in delivered for batch_id in row.batch_ids)
    if batch_ids:
        expect()
    return batch_ids


def note_ended(rows: Iterable[Row]) -> frozenset[int]:
    """Return the batches of these rows of finish_members.sql whose members ended."""
    ended = frozenset(row.batch_id for row in rows if row.state != State.QUEUED) - {None}
    if ended:
        expect()
    return ended
