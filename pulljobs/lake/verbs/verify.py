"""Compare days of PostgreSQL and the lake by count and checksum; exit code 1 if a day differs.

Equal days may be dropped once they are old enough, by `retain` or by the maintenance of workers.
"""

from argparse import ArgumentParser
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pulljobs.conf import settings
from pulljobs.management.parsing import parse_day
from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.spark.comparing import DayComparison, LakeSnapshot
    from pulljobs.lake.spark.export_run import Sessions
    from pulljobs.lake.spark.verifying import Difference

NOTHING: Final = "Nothing was compared: PostgreSQL and the lake have no rows of these days."


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--day", type=parse_day, action="append", metavar="YYYY-MM-DD",
        help="day in UTC, may be repeated (default: all days of PostgreSQL that were not dropped)",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import comparing, session, tables, verifying
    from pyspark_pulljobs.schemas import TABLES

    using, location = settings().DATABASE, tables.location()
    snapshot = verifying.take_snapshot(using, location)
    chosen = options["day"]
    days = dict.fromkeys(TABLES, chosen) if chosen else verifying.list_kept_days(using, location)
    rows = snapshot.count_rows(days)
    with ExitStack() as stack:
        opened = partial(session.open_session, "verify", rows=rows, **options)
        sessions = session.keep_session(opened, stack)
        compared = comparing.compare_days(sessions, using, snapshot, days)
        verifying.record_results(using, snapshot, compared)  # before Spark starts, which may fail
        differing = [
            (day, _find_difference(sessions, using, snapshot, day))
            for day in compared
            if not day.is_equal
        ]
    return CommandResult(
        content(compared, differing), lines(compared, differing), int(bool(differing))
    )


def _find_difference(
    sessions: "Sessions", using: str, snapshot: "LakeSnapshot", day: "DayComparison"
) -> "Difference":
    from pulljobs.lake.spark import verifying

    with sessions() as spark:
        return verifying.find_difference(spark, using, snapshot, day)


Differing = list[tuple["DayComparison", "Difference"]]


def content(compared: "list[DayComparison]", differing: Differing) -> dict[str, Any]:
    differences = {(day.table, day.day): ids._asdict() for day, ids in differing}
    return {
        "equal": not differing,
        "days": [
            {
                "table": day.table,
                "day": day.day,
                "equal": day.is_equal,
                "database": day.database._asdict(),
                "lake": day.lake._asdict(),
                "pending": day.pending,
                "broken_payloads": day.broken_payloads,
                **differences.get((day.table, day.day), {}),
            }
            for day in compared
        ],
    }


def lines(compared: "list[DayComparison]", differing: Differing) -> list[str]:
    if not compared:
        return [NOTHING]
    reported = [_line(day) for day in compared]
    for day, ids in differing:
        for kind, some in ids._asdict().items():
            if some:
                words = kind.replace("_", " ")
                reported.append(f"{day.table} {day.day}: {words}: {', '.join(map(str, some))}")
    return [*reported, "All days are equal." if not differing else "Not all days are equal."]


def _line(day: "DayComparison") -> str:
    later = f", {day.pending:,} not exported yet" if day.pending else ""
    if day.is_equal:
        return f"{day.table} {day.day}: equal, {day.database.rows:,} rows{later}"
    if day.broken_payloads:
        later += f", {day.broken_payloads:,} payloads of the lake are broken"
    sums = ", ".join(
        f"{name} {mine:,} and {its:,}"
        for name, mine, its in zip(day.database._fields, day.database, day.lake, strict=True)
        if mine != its
    )
    return f"{day.table} {day.day}: DIFFERS, in the database and the lake: {sums}{later}"
