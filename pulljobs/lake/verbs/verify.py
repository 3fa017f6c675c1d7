"""Compare days of PostgreSQL with the lake, by count, sum of ids and checksum; 1 if any differs.

Days that are equal may be dropped once they are old enough, by `retain` or by upkeep.
"""

from argparse import ArgumentParser
from datetime import date
from typing import TYPE_CHECKING, Any

from pulljobs.conf import settings
from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.spark.verifying import Compared, Difference


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--day", type=date.fromisoformat, action="append", metavar="YYYY-MM-DD",
        help="of UTC, may be repeated; by default all of PostgreSQL's that were not dropped",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import session, tables, verifying
    from pyspark_pulljobs.schemas import TABLES

    using, where = settings().DATABASE, tables.location()
    of = verifying.snapshot(using, where)
    chosen = options["day"]
    days = dict.fromkeys(TABLES, chosen) if chosen else verifying.days_kept(using, where)
    with session.opened("verify", master=options["master"], conf=options["conf"]) as spark:
        found = verifying.compared(spark, using, of, days)
        differing = [
            (one, verifying.difference(spark, using, of, one)) for one in found if not one.is_equal
        ]
    verifying.recorded(using, of, found)
    return CommandResult(content(found, differing), lines(found, differing), int(bool(differing)))


Differing = list[tuple["Compared", "Difference"]]


def content(found: "list[Compared]", differing: Differing) -> dict[str, Any]:
    shown = {(one.table, one.day): ids._asdict() for one, ids in differing}
    return {
        "equal": not differing,
        "days": [
            {
                "table": one.table,
                "day": one.day,
                "equal": one.is_equal,
                "database": one.ours._asdict(),
                "lake": one.lakes._asdict(),
                "pending": one.pending,
                "broken_payloads": one.broken_payloads,
                **shown.get((one.table, one.day), {}),
            }
            for one in found
        ],
    }


def lines(found: "list[Compared]", differing: Differing) -> list[str]:
    told = [_line(one) for one in found]
    for one, ids in differing:
        for kind, some in ids._asdict().items():
            if some:
                words = kind.replace("_", " ")
                told.append(f"{one.table} {one.day}: {words}: {', '.join(map(str, some))}")
    return [*told, "Every day is the same." if not differing else "Not every day is the same."]


def _line(one: "Compared") -> str:
    later = f", {one.pending:,} not exported yet" if one.pending else ""
    if one.is_equal:
        return f"{one.table} {one.day}: equal, {one.ours.rows:,} rows{later}"
    if one.broken_payloads:
        later += f", {one.broken_payloads:,} payloads of the lake are broken"
    sums = ", ".join(
        f"{name} {mine:,} and {its:,}"
        for name, mine, its in zip(one.ours._fields, one.ours, one.lakes, strict=True)
        if mine != its
    )
    return f"{one.table} {one.day}: DIFFERS, in the database and the lake: {sums}{later}"
