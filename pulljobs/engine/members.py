"""Choice between settling statements that leave out members of batches and those that take them.

The first kind is quicker, so a process begins with it. Jobs that it leaves out are settled by the
second kind, which the process then runs at once for a while, because it expects members.
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
"""Function that runs the statement of that name for each set of parameters, with a row for each."""
_until = float("-inf")


def choose(name: str) -> str:
    """Return `name`, or while members of batches are expected, its variant that settles them."""
    return for_members(name) if time.monotonic() < _until else name


def for_one(name: str) -> str:
    """Return the name of the variant of a statement for a single job, or `name` without one."""
    return "deliver_member" if name == "deliver_members" else name


def for_members(name: str) -> str:
    """Return the name of the variant of a statement that settles members of batches as well."""
    return f"{name}_members"


def expect() -> None:
    """Have `choose` return variants for members of batches for the next `EXPECTED_SECONDS`."""
    global _until
    _until = time.monotonic() + EXPECTED_SECONDS


def finish(run: Callable[[str], list[Row]], jobs: int) -> tuple[list[Row], frozenset[int]]:
    """Finish jobs. Return the rows of finish.sql, and ids of batches of which a member ended.

    `run` runs the statement of a name for all jobs, whose number is `jobs`. If finish.sql leaves
    out some, it runs finish_members.sql too, or at once and alone if members are expected.
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
    """Deliver jobs of claims. Return rows of deliver.sql, and ids of the batches of these jobs.

    If deliver.sql leaves out jobs of a claim, deliver_members.sql runs for all of them: the claim
    has two rows then. If members are expected, it runs at once (deliver_member.sql for one job).
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
    """Return ids of batches of which a job of these rows ended. If there are any, call `expect`."""
    ended = frozenset(row.batch_id for row in rows if row.state != State.QUEUED) - {None}
    if ended:
        expect()
    return ended
