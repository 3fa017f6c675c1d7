"""Look in the tables for anything that breaks a promise; the exit code is 1 if there is.

It only reads, a page at a time, and may run in production.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import OperationalError

from pulljobs.conf import settings
from pulljobs.management.output_blocks import Block, Column, StyledText, TableBlock, Tone
from pulljobs.management.parsing import span, whole
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.progress import shown
from pulljobs.storage import health, invariants, partitions
from pulljobs.storage.invariants import INVARIANTS, CheckLimits, CheckResult

SHOWN: Final = 20
"""Ids named of each broken promise."""
UNREAPED: Final = 12
"""Reaper intervals after which a lease that is over was forgotten."""
LOOKED_AT: Final = ("pulljobs_job", "pulljobs_lease")
LEAST_OVERDUE: Final = timedelta(minutes=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=whole(0), default=100_000,
        help="of each table at the most: the oldest jobs, the newest messages and settlements; "
        "0: all (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=span, default="10", metavar="TIME",
        help="that one page of rows may take (default: %(default)s seconds)",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=span, metavar="TIME",
        help="until the second look at what may be passing (default: two reaper intervals)",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    interval = settings().REAP_INTERVAL
    limits = CheckLimits(
        rows=options["rows"] or None,
        page_timeout=options["timeout"],
        overdue=max(UNREAPED * interval, LEAST_OVERDUE),
        retention=settings().RETENTION,
    )
    patience = 2 * interval if options["patience"] is None else options["patience"]
    try:
        with shown("verify", "rows", _expected(options["rows"])) as progress:
            using = settings().DATABASE
            found = invariants.check(using, limits, patience, progress.advance)
    except OperationalError as error:
        raise CommandError(
            f"Could not look at everything, try again later or with a longer --timeout: {error}"
        ) from error
    return CommandResult(
        _content(found), list(_lines(found)), EXIT_PROBLEM if found.broken else EXIT_OK
    )


def _expected(limit: int) -> int:
    """Rows that will be looked at, as PostgreSQL counted along; `limit` 0: all."""
    using = settings().DATABASE
    rows = [one.live_rows for one in health.tables(using) if one.name in LOOKED_AT]
    for table in partitions.PARTITIONED:
        rows.append(sum(one.rows for one in health.sizes(using, partitions.existing(using, table))))
    return sum(min(count, limit or count) for count in rows)


def _content(found: CheckResult) -> dict[str, Any]:
    return {
        "ok": not found.broken,
        "looked_at": found.looked_at,
        "more": found.unseen,
        "broken": {
            name: {"promise": INVARIANTS[name], "count": len(ids), "ids": sorted(ids)[:SHOWN]}
            for name, ids in found.broken.items()
        },
    }


def _lines(found: CheckResult) -> Iterator[Block]:
    columns = [Column("table"), Column("rows looked at", is_number=True), Column("")]
    more = dict.fromkeys(found.unseen, "there may be more")
    yield TableBlock(
        columns,
        [[table, f"{count:,}", more.get(table, "")] for table, count in found.looked_at.items()],
    )
    for name, ids in found.broken.items():
        shown = ", ".join(map(str, sorted(ids)[:SHOWN]))
        text = f"BROKEN {name}: {INVARIANTS[name]} {len(ids):,} do not keep it: {shown}"
        yield StyledText(text, Tone.BAD)
    if found.broken:
        yield StyledText("Not every promise is kept.", Tone.BAD)
    else:
        yield StyledText("Every promise is kept.", Tone.GOOD)
