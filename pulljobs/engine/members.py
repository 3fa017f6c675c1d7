"""Choice between the statements that leave members of batches and those that settle them as well.

A process that settles no member runs the statements that know no batches. It tries jobs that they
leave with the other statements, and then expects members for a while.
"""

import time
from collections.abc import Callable, Iterable
from typing import Final

from pulljobs.engine.sql import Row
from pulljobs.states import State

EXPECTED_SECONDS: Final = 60.0
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


def deliver(run: Callable[[str], list[Row]]) -> list[Row]:
    """Deliver jobs of one claim, and return the row of deliver.sql, or two rows if it left some.

    `run` runs the statement of that name with the parameters of the jobs. The second row is that of
    deliver_members.sql, which finds only the jobs that were left.
    """
    rows = run(name := choose("deliver"))
    if name == "deliver" and rows[0].delivered is not None:
        rows += run(name := for_members(name))
    if name != "deliver" and rows[-1].batch_ids:
        expect()
    return rows


def note_ended(rows: Iterable[Row]) -> frozenset[int]:
    """Return the batches of these rows of finish_members.sql whose members ended."""
    ended = frozenset(row.batch_id for row in rows if row.state != State.QUEUED) - {None}
    if ended:
        expect()
    return ended
