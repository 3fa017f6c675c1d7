"""Counts of the errors of dead jobs by the calling process. `spark_errors` has the same counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.lake.rollups.counts import Error, Key, Rows
from pulljobs.lake.rollups.errors import LONGEST_SAMPLE, fingerprint
from pulljobs.lake.rollups.hours import hour_at

COLUMNS: Final = ["id", "job_id", "consumer_id", "hour", "reason", "error"]


@dataclass(slots=True)
class _EqualErrors:
    """Number of jobs with errors of one fingerprint, and the row of the oldest of them."""

    oldest: Mapping[str, Any]
    jobs: int = 0


class ErrorTally:
    """Counter of the errors of settlements, which are added batch by batch."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._errors: dict[tuple[Key, str, str], _EqualErrors] = {}

    def add(self, settlements: pa.Table) -> None:
        dead = settlements.filter(pc.equal(settlements["state"], "DEAD")).select(COLUMNS)
        for row in dead.to_pylist():
            key = Key(row["consumer_id"], hour_at(row["hour"]))
            name = (key, fingerprint(row["error"] or ""), row["reason"])
            errors = self._errors.setdefault(name, _EqualErrors(row))
            errors.jobs += 1
            errors.oldest = min(errors.oldest, row, key=itemgetter("id"))

    def end(self) -> None:
        """Store the counts of the most frequent errors, after the last batch."""
        for (key, shape, reason), errors in self._errors.items():
            counts, oldest = self._rows[key], errors.oldest
            sample = (oldest["error"] or "")[:LONGEST_SAMPLE]
            counts.reasons[reason] += errors.jobs
            counts.errors[shape, reason] = Error(errors.jobs, sample, oldest["job_id"])
        for counts in self._rows.values():
            counts.errors = dict(counts.worst_errors())
