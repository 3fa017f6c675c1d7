"""Drop old days from PostgreSQL that the lake verifiably has; exit code 1 if a day differs."""

from argparse import ArgumentParser
from datetime import timedelta
from functools import partial
from typing import Any

from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError
from pulljobs.management.parsing import LONGEST, number_between, parse_day
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=number_between("days", 1, LONGEST.days), metavar="DAYS",
        help=f"age in days, one or more ({SETTING}['RETENTION'])",
    )  # fmt: skip
    parser.add_argument(
        "--day", type=parse_day, action="append", default=[], metavar="YYYY-MM-DD",
        help="only this day, even if it was restored; may be repeated",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import retaining, session, tables

    location, age = tables.location(), _age(options["older_than"])
    opened = partial(session.open_session, "retain", master=options["master"], conf=options["conf"])
    retained = retaining.retain(settings().DATABASE, location, age, options["day"], opened)
    content = {
        "dropped": [partition.name for partition in retained.dropped],
        "needed": [partition.name for partition in retained.needed],
        "differing": [day.partition.name for day in retained.differing],
    }
    lines = [
        *(f"{name}: dropped, the lake has it" for name in content["dropped"]),
        *(
            f"{name}: stays, because live jobs or the next export need it"
            for name in content["needed"]
        ),
        *(f"{name}: STAYS, the lake differs: see `lake verify`" for name in content["differing"]),
    ]
    return CommandResult(content, lines or ["No day is old enough."], int(bool(retained.differing)))


def _age(days: float | None) -> timedelta:
    age = settings().RETENTION if days is None else timedelta(days=days)
    if age is None:
        raise ConfigurationError(f"Missing age: give --older-than, or set {SETTING}['RETENTION'].")
    return age
