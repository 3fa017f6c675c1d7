"""Check of the invariants of runs, for `pulljobs verify`. It only reads, also while workers run."""

from collections import defaultdict
from datetime import timedelta
from typing import Final

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.sql import Row
from pulljobs.hooks import VerifiedPart
from pulljobs.storage.statements import run

PAGE: Final = 1_000
AGE: Final = timedelta(minutes=1)
INVARIANTS: Final = {
    "signalled_run_is_woken": "No run waits for a signal that it has had for a minute.",
    "step_has_its_place": "No two steps of a run have the same position.",
    "consumed_signal_has_its_wait": "Each signal that was consumed is the result of a wait.",
}
COLUMNS: Final = {
    "is_woken": "signalled_run_is_woken",
    "is_placed": "step_has_its_place",
    "is_consumed": "consumed_signal_has_its_wait",
}


def verify_part() -> VerifiedPart:
    """Check all runs, and return those that break an invariant."""
    last, looked_at = 0, 0
    broken: defaultdict[str, list[str]] = defaultdict(list)
    while page := _read(last):
        last, looked_at = page[-1].id, looked_at + len(page)
        for row in page:
            for column, invariant in COLUMNS.items():
                if not getattr(row, column):
                    broken[invariant].append(f"run {ids.encode(row.id)}")
    return VerifiedPart(looked_at, broken, INVARIANTS)


def _read(last: int) -> list[Row]:
    params = {"after": last, "wanted": PAGE, "age": AGE}
    return run(settings().DATABASE, "verify_runs", params)
