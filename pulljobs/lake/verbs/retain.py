"""Drop days that are old enough and that the lake holds, verified; 1 if any differs and stays."""

from argparse import ArgumentParser
from datetime import date, timedelta
from functools import partial
from typing import Any

from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError
from pulljobs.management.parsing import LONGEST, amount
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=amount("days", 1, LONGEST.days), metavar="DAYS",
        help=f"age in days, one or more ({SETTING}['RETENTION'])",
    )  # fmt: skip
    parser.add_argument(
        "--day", type=date.fromisoformat, action="append", default=[], metavar="YYYY-MM-DD",
        help="only this one of them, though it was restored; may be repeated",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import retaining, session, tables

    where, age = tables.location(), _age(options["older_than"])
    opened = partial(session.opened, "retain", master=options["master"], conf=options["conf"])
    found = retaining.retain(settings().DATABASE, where, age, options["day"], opened)
    content = {
        "dropped": [one.name for one in found.dropped],
        "needed": [one.name for one in found.needed],
        "differing": [one.partition.name for one in found.differing],
    }
    lines = [
        *(f"{name}: dropped, the lake has it" for name in content["dropped"]),
        *(
            f"{name}: stays, for live jobs or an export to come need it"
            for name in content["needed"]
        ),
        *(f"{name}: STAYS, the lake differs: see `lake verify`" for name in content["differing"]),
    ]
    return CommandResult(content, lines or ["No day is old enough."], int(bool(found.differing)))


def _age(days: float | None) -> timedelta:
    age = settings().RETENTION if days is None else timedelta(days=days)
    if age is None:
        raise ConfigurationError(f"How old? Give --older-than, or set {SETTING}['RETENTION'].")
    return age
