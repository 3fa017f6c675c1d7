"""Count settlements of the lake by consumer and hour, day and month, for charts.

A run recounts the hours for which the lake has new rows. So it can be repeated, and late rows are
counted in the right hour. This process counts up to twenty million rows. Spark is started
for more rows, or if a master is chosen.
"""

from argparse import ArgumentParser
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from pulljobs.management.subcommands import CommandResult

if TYPE_CHECKING:
    from pulljobs.lake.rollups.running import RolledUp


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--recount", action="store_true", help="recount every hour of the lake")


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.rollups import running
    from pulljobs.lake.spark import session

    opened = partial(session.open_session, "rollup", master=options["master"], conf=options["conf"])
    has_master = session.has_master(options["master"])
    rolled_up = running.roll_up(opened, recount=options["recount"], always_spark=has_master)
    return CommandResult(asdict(rolled_up), list(_lines(rolled_up)))


def _lines(done: "RolledUp") -> list[str]:
    if not done.hours:
        return ["Nothing to count: the lake has nothing new."]
    rows = ", ".join(f"{count:,} {period}" for period, count in done.rows.items())
    return [
        f"{done.settlements:,} settlements = {done.delivered:,} delivered + {done.dead:,} dead, "
        f"{done.published:,} published to consumers",
        f"{done.hours:,} hours counted: {rows} rows",
        f"known until {done.known_until:%Y-%m-%d %H:%M:%S %Z}",
        f"{done.seconds:.1f} seconds",
    ]
