"""Service of `pulljobs lake watch`, which keeps the lake up to date with one Spark session."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import psycopg
from django.db import Error, connections

from pulljobs.conf import settings
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.errors import LakeError
from pulljobs.lake import verified_days
from pulljobs.lake.rollups import running
from pulljobs.lake.spark import (
    compacting,
    comparing,
    exporting,
    failures,
    retaining,
    tables,
    verifying,
)
from pulljobs.lake.spark.comparing import PARTITIONED, Days
from pulljobs.lake.spark.export_run import Sessions
from pulljobs.lake.spark.exporting import ExportOptions
from pulljobs.storage import partitions
from pulljobs.storage.partitions import Partition

DAY_SECONDS: Final = 86_400.0
KEPT: Final = timedelta(days=7)
"""Age from which files that only older versions of a table name are removed."""
DROPS_NOTHING: Final = (
    "no day is dropped here, because this role does not own {}: run `pulljobs maintain` daily as "
    "their owner, which drops the days that are equal"
)


@dataclass(slots=True)
class LakeStep:
    """Step of the service, such as the export, that runs at an interval."""

    name: str
    every: float
    """Seconds between the starts of two runs. The first run is at once."""
    run: Callable[[], str]
    """Function that does the step, and returns a line about it, or an empty text for nothing."""
    due: float = field(default=0.0, init=False)
    """Time of the next run, by the monotonic clock."""


class LakeService:
    """Loop over steps such as the export. A step that fails is logged, and runs again when due.

    That holds for errors of the lake and of databases. Others, such as of a setting, are raised.
    """

    def __init__(self, steps: Sequence[LakeStep]) -> None:
        self._steps = steps

    def tick(self) -> Iterator[tuple[str, str]]:
        """Run the steps that are due, in order. Yield (name, result) of each that did work."""
        for step in self._steps:
            if step.due <= time.monotonic():
                step.due = time.monotonic() + step.every
                if line := _run(step):
                    yield step.name, line

    @property
    def seconds(self) -> float:
        """Seconds until the next step is due."""
        return max(min(step.due for step in self._steps) - time.monotonic(), 0.0)


def _run(step: LakeStep) -> str:
    try:
        with failures.raising_store_errors(tables.location()):
            return step.run()
    except (LakeError, Error, psycopg.Error) as error:
        connections.close_all()
        line = str(error).strip().partition("\n")[0]
        emit(LoopFailed(f"lake watch, {step.name}", line, step.every))
        return ""


def plan_steps(
    sessions: Sessions,
    options: ExportOptions,
    export_every: float,
    rollup_every: float,
    *,
    always_spark: bool = False,
) -> list[LakeStep]:
    """Return the steps of the service: export and rollups often, the others once a day.

    `export_every` and `rollup_every` are in seconds. With `always_spark`, exports and rollups of
    few rows run in Spark, too.
    """
    return [
        LakeStep("export", export_every, lambda: _export(options, sessions, always_spark)),
        LakeStep("rollup", rollup_every, lambda: _roll_up(sessions, always_spark)),
        LakeStep("verify", DAY_SECONDS, lambda: _verify(sessions)),
        LakeStep("retain", DAY_SECONDS, Retention(sessions)),
        LakeStep("compact", DAY_SECONDS, _compact),
        LakeStep("vacuum", DAY_SECONDS, _vacuum),
    ]


def _export(options: ExportOptions, sessions: Sessions, always_spark: bool) -> str:
    done = exporting.export(options, sessions, always_spark=always_spark)
    rows = ", ".join(f"{count:,} of {table}" for table, count in done.rows.items())
    return rows if done.runs else ""


def _roll_up(sessions: Sessions, always_spark: bool) -> str:
    done = running.roll_up(sessions, always_spark=always_spark)
    return f"{done.settlements:,} settlements in {done.hours:,} hours" if done.hours else ""


def _verify(sessions: Sessions) -> str:
    """Compare past days that are not known to be equal in the lake, and record the results.

    Return a text about them, which is empty if there are no such days.
    """
    using, location = settings().DATABASE, tables.location()
    days = list_unverified(using, location)
    if not any(days.values()):
        return ""
    snapshot = verifying.take_snapshot(using, location)
    compared = comparing.compare_days(sessions, using, snapshot, days)
    verifying.record_results(using, snapshot, compared)
    differing = [f"{day.table} {day.day}" for day in compared if not day.is_equal]
    if differing:
        return f"these days DIFFER, see `lake verify`: {', '.join(differing)}"
    return f"{len(compared):,} days are equal"


def list_unverified(using: str, location: str) -> Days:
    """Return past days in PostgreSQL that are not known to be equal in the lake, by table."""
    today, known = datetime.now(UTC).date(), verified_days.find_verified(using, location)
    return {
        table: [
            day for day in days if day < today and Partition(PARTITIONED[table], day) not in known
        ]
        for table, days in verifying.list_kept_days(using, location).items()
    }


class Retention:
    """Step that drops old days, or says once that its database role may drop none."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions, self._is_explained = sessions, False

    def __call__(self) -> str:
        """Drop the old days, and return a line about them, empty if no day was dropped.

        If the role may drop none, the first call returns a line about that, later calls no text.
        """
        using, age = settings().DATABASE, settings().RETENTION
        if age is None:
            return ""
        if foreign_tables := partitions.not_owned(using):
            return self._explain_once(foreign_tables)
        done = retaining.retain(using, tables.location(), age, [], self._sessions)
        return ", ".join(f"{partition.name} was dropped" for partition in done.dropped)

    def _explain_once(self, foreign_tables: Sequence[str]) -> str:
        is_new, self._is_explained = not self._is_explained, True
        return DROPS_NOTHING.format(" and ".join(foreign_tables)) if is_new else ""


def _compact() -> str:
    done = compacting.compact(settings().DATABASE, tables.location())
    days = sum(table.days for table in done)
    return f"{days:,} days" if days else ""


def _vacuum() -> str:
    done = compacting.vacuum(settings().DATABASE, tables.location(), KEPT)
    files = sum(table.files for table in done)
    return f"{files:,} files were removed" if files else ""
