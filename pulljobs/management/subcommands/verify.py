"""Check the invariants of the tables; the exit code is 1 if a row breaks one.

It only reads, one page of rows at a time, and may run in production.
"""

from argparse import ArgumentParser
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import OperationalError
from psycopg.errors import QueryCanceled

from pulljobs import hooks
from pulljobs.conf import settings
from pulljobs.hooks import VerifiedPart
from pulljobs.management.output_blocks import Block, Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.parsing import parse_duration, whole_number
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.progress import show_progress
from pulljobs.storage import health, invariants, partitions
from pulljobs.storage.invariants import INVARIANTS, CheckLimits, CheckResult

MAX_IDS: Final = 20
"""Maximum number of ids listed for a broken invariant."""
OVERDUE_INTERVALS: Final = 12
"""Reaper intervals after which an expired lease counts as forgotten."""
CHECKED_TABLES: Final = ("pulljobs_job", "pulljobs_lease")
MIN_OVERDUE: Final = timedelta(minutes=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=whole_number(0), default=100_000,
        help="maximum number of rows checked in each table: the oldest jobs, the newest messages "
        "and settlements; 0: all (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=parse_duration, default="10", metavar="TIME",
        help="limit for reading one page of rows (default: %(default)s seconds)",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=parse_duration, metavar="TIME",
        help="wait before suspicious rows are checked again (default: two reaper intervals)",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    interval = settings().REAP_INTERVAL
    limits = CheckLimits(
        rows=options["rows"] or None,
        page_timeout=options["timeout"],
        overdue=max(OVERDUE_INTERVALS * interval, MIN_OVERDUE),
        retention=settings().RETENTION,
    )
    patience = 2 * interval if options["patience"] is None else options["patience"]
    try:
        with show_progress("verify", "rows", _count_expected(options["rows"])) as progress:
            using = settings().DATABASE
            checked = invariants.check(using, limits, patience, progress.advance)
        parts = {name: hooks.load(verify)() for name, verify in hooks.verifiers.items()}
    except OperationalError as error:
        if not isinstance(error.__cause__, QueryCanceled):
            raise
        raise CommandError(
            f"The check did not finish: try again later or with a longer --timeout: {error}"
        ) from error
    is_broken = bool(checked.broken) or any(part.broken for part in parts.values())
    return CommandResult(
        {"ok": not is_broken, **_content(checked, parts)},
        list(_lines(checked, parts, is_broken=is_broken)),
        EXIT_PROBLEM if is_broken else EXIT_OK,
    )


def _count_expected(limit: int) -> int:
    """Estimate, for the progress bar, how many rows are checked, by PostgreSQL's statistics.

    `limit` is the number of rows of each table to check at most, or 0 for all.
    """
    using = settings().DATABASE
    rows = [table.live_rows for table in health.tables(using) if table.name in CHECKED_TABLES]
    for name in partitions.PARTITIONED:
        sizes = health.sizes(using, partitions.existing(using, name))
        rows.append(sum(size.rows for size in sizes))
    return sum(min(count, limit or count) for count in rows)


def _content(checked: CheckResult, parts: Mapping[str, VerifiedPart]) -> dict[str, Any]:
    looked_at = {name: part.looked_at for name, part in parts.items()}
    return {
        "looked_at": checked.looked_at | looked_at,
        "more": checked.unseen,
        "broken": {
            name: {"promise": promise, "count": len(ids), "ids": ids[:MAX_IDS]}
            for name, promise, ids in _broken(checked, parts)
        },
    }


def _broken(
    checked: CheckResult, parts: Mapping[str, VerifiedPart]
) -> Iterator[tuple[str, str, list[Any]]]:
    """Yield (name, text of the invariant, ids or texts of rows that break it) for each broken one.

    `parts` are the results of other apps by their titles, such as "slots of schedules".
    """
    for name, ids in checked.broken.items():
        yield name, INVARIANTS[name], sorted(ids)
    for part in parts.values():
        for name, rows in part.broken.items():
            yield name, part.invariants[name], list(rows)


def _lines(
    checked: CheckResult, parts: Mapping[str, VerifiedPart], *, is_broken: bool
) -> Iterator[Block]:
    columns = [Column("table"), Column("rows looked at", is_number=True), Column("")]
    more = dict.fromkeys(checked.unseen, "there may be more")
    counts = checked.looked_at | {name: part.looked_at for name, part in parts.items()}
    rows: list[list[Cell]] = [
        [name, f"{count:,}", more.get(name, "")] for name, count in counts.items()
    ]
    yield TableBlock(columns, rows)
    for name, promise, ids in _broken(checked, parts):
        listed = ", ".join(map(str, ids[:MAX_IDS]))
        text = f"BROKEN {name}: {promise} Rows that break it: {len(ids):,} ({listed})."
        yield StyledText(text, Tone.BAD)
    if is_broken:
        yield StyledText("Not every invariant holds.", Tone.BAD)
    else:
        yield StyledText("Every invariant holds.", Tone.GOOD)
