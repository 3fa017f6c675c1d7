"""Look in the tables for anything that breaks a promise; exit code 1 if there is.

It only reads, a page at a time, and may run in production.
"""

from argparse import ArgumentParser
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import CommandError
from django.db import OperationalError

from pulljobs.conf import settings
from pulljobs.management.subcommands import Answer
from pulljobs.storage import promises
from pulljobs.storage.promises import PROMISES, Found, Limits

SHOWN: Final = 20
"""Ids named of each broken promise."""
UNREAPED: Final = 12
"""Reaper intervals after which a lease that is over was forgotten."""
LEAST_OVERDUE: Final = timedelta(minutes=1)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rows", type=int, default=100_000,
        help="of each table at the most: the oldest jobs, the newest messages and settlements; "
        "0: all (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=10.0,
        help="seconds that one page of rows may take (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--patience", type=float,
        help="seconds until the second look at what may be passing (default: two reaper intervals)",
    )  # fmt: skip


def handle(**options: Any) -> Answer:
    interval = settings().REAP_INTERVAL
    limits = Limits(
        rows=options["rows"] or None,
        page_timeout=timedelta(seconds=options["timeout"]),
        overdue=max(UNREAPED * interval, LEAST_OVERDUE),
        retention=settings().RETENTION,
    )
    patience = options["patience"]
    try:
        found = promises.confirmed(
            settings().DATABASE,
            limits,
            2 * interval if patience is None else timedelta(seconds=patience),
        )
    except OperationalError as error:
        raise CommandError(
            f"Could not look at everything, try again later or with a longer --timeout: {error}"
        ) from error
    return Answer(_content(found), _lines(found), exit_code=1 if found.broken else 0)


def _content(found: Found) -> dict[str, Any]:
    return {
        "ok": not found.broken,
        "looked_at": found.looked_at,
        "more": found.unseen,
        "broken": {
            name: {"promise": PROMISES[name], "count": len(ids), "ids": sorted(ids)[:SHOWN]}
            for name, ids in found.broken.items()
        },
    }


def _lines(found: Found) -> list[str]:
    more = dict.fromkeys(found.unseen, ", there may be more")
    lines = [
        f"{table}: looked at {count:,}{more.get(table, '')}"
        for table, count in found.looked_at.items()
    ]
    for name, ids in found.broken.items():
        shown = ", ".join(map(str, sorted(ids)[:SHOWN]))
        lines.append(f"BROKEN {name}: {PROMISES[name]} {len(ids):,} do not keep it: {shown}")
    return [*lines, "Every promise is kept." if not found.broken else "Not every promise is kept."]
