"""Counts of the errors of dead jobs by the calling process. `spark_errors` has the same counts."""

from collections.abc import Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.lake.rollups.arrow_settled import is_in_state
from pulljobs.lake.rollups.counts import Error, Key, Rows
from pulljobs.lake.rollups.errors import LONGEST_SAMPLE, LONGEST_SHAPE, fingerprint
from pulljobs.lake.rollups.hours import hour_at

COLUMNS: Final = ["id", "job_id", "consumer_id", "hour", "reason", "error"]
EQUAL: Final = ["consumer_id", "hour", "reason", "line"]


@dataclass(slots=True)
class _EqualErrors:
    """Number of jobs with errors of one fingerprint, and the row of the oldest of them."""

    oldest: Mapping[str, Any]
    jobs: int = 0


class ErrorTally:
    """Counter of the errors of settlements, which are added in Arrow batches."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._errors: dict[tuple[Key, str, str], _EqualErrors] = {}

    def add(self, settlements: pa.Table) -> None:
        is_dead = is_in_state(settlements["state"].combine_chunks(), "DEAD")
        dead = settlements.select(COLUMNS).filter(is_dead)
        errors = dead["error"].combine_chunks()
        lines = simplify(errors.dictionary).take(errors.indices).fill_null("")
        dead = dead.append_column("line", lines)
        equal = dead.group_by(EQUAL, use_threads=False).aggregate(
            [([], "count_all"), ("id", "min")]
        )
        oldest = dead.take(pc.index_in(equal["id_min"], value_set=dead["id"]))
        for row, jobs in zip(oldest.to_pylist(), equal["count_all"].to_pylist(), strict=True):
            self._add(row, jobs)

    def _add(self, row: Mapping[str, Any], jobs: int) -> None:
        key = Key(row["consumer_id"], hour_at(row["hour"]))
        name = (key, fingerprint(row["line"]), row["reason"])
        errors = self._errors.setdefault(name, _EqualErrors(row))
        errors.jobs += jobs
        errors.oldest = min(errors.oldest, row, key=itemgetter("id"))

    def end(self) -> None:
        """Put the totals by reason and the most frequent errors into the counts of each consumer.

        The caller has added all batches before.
        """
        for (key, shape, reason), errors in self._errors.items():
            counts, oldest = self._rows[key], errors.oldest
            sample = (oldest["error"] or "")[:LONGEST_SAMPLE]
            counts.reasons[reason] += errors.jobs
            counts.errors[shape, reason] = Error(errors.jobs, sample, oldest["job_id"])
        for counts in self._rows.values():
            counts.errors = dict(counts.worst_errors())


def simplify(errors: pa.Array) -> pa.Array:
    """Return the beginning of each error's first line, with its digits replaced by 1.

    Errors often differ only in numbers, so fewer lines are left to fingerprint. The fingerprints
    stay the same, because their patterns treat all digits alike. In a line with `0x` zeros stay.
    """
    begins = pc.utf8_slice_codeunits(pc.utf8_trim(errors, " "), 0, LONGEST_SHAPE)
    lines = pc.replace_substring_regex(begins, r"(?s)\n.*", "")
    zeros = pc.replace_substring_regex(lines, "[1-9]", "1")
    digits = pc.replace_substring(zeros, "0", "1")
    return pc.if_else(pc.match_substring(lines, "0x"), zeros, digits)
