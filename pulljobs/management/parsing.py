"""Argument parsers of commands, and of single arguments, such as durations.

Those are types of `argparse`: they raise ArgumentTypeError for a wrong text.
"""

import math
import re
from argparse import SUPPRESS, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from datetime import date, datetime, timedelta
from inspect import cleandoc
from types import ModuleType
from typing import Any, Final, NoReturn

from django.core.management.base import CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from pulljobs import ids
from pulljobs.management.subcommands import EXIT_USAGE

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SIZE_UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
LONGEST: Final = timedelta(days=36_500)
FIRST_DAY: Final = ids.EPOCH.date()
LAST_DAY: Final = ids.time_of(ids.LARGEST_ID).date() - timedelta(days=1)
"""Last day whose ids, and those of the next midnight, fit into 64 bits."""


class Parser(CommandParser):
    """Argument parser that reports errors in one line, without the usage.

    It accepts flags between positional arguments.
    """

    _is_mixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._is_mixing or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        self._is_mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_mixing = False

    def error(self, message: str) -> NoReturn:
        if self.called_from_command_line:
            self.exit(EXIT_USAGE, f"{self.prog}: {message} (see --help)\n")
        raise CommandError(message, returncode=EXIT_USAGE)


def add_action(actions: Any, name: str, module: ModuleType) -> CommandParser:
    """Add the parser of a verb to `actions`, the subparsers of a command, and return it.

    The docstring of the verb's module is its help, and the first line its entry in the list of
    verbs. All verbs accept --json and Django's colour flags after the verb as well.
    """
    help_text = cleandoc(module.__doc__ or "").replace("%", "%%")
    action: CommandParser = actions.add_parser(
        name,
        help=help_text.partition("\n")[0],
        description=help_text,
        formatter_class=RawDescriptionHelpFormatter,
    )
    if hasattr(module, "add_arguments"):
        module.add_arguments(action)
    action.add_argument("--json", action="store_true", default=SUPPRESS, help="one line of JSON")
    for flag in ("--no-color", "--force-color"):  # as in all commands of Django
        action.add_argument(flag, action="store_true", default=SUPPRESS, help=SUPPRESS)
    return action


def parse_pair(text: str) -> tuple[str, str]:
    """Parse `NAME=VALUE` into name and value."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def parse_duration(text: str) -> timedelta:
    """Parse a duration: a number of seconds, or a number followed by s, m, h or d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = float(match[1]) * UNITS[match[2] or "s"] if match else math.inf
    if seconds > LONGEST.total_seconds():
        raise ArgumentTypeError(f"{text!r} is no duration such as 90, 5m, 12h or 30d")
    return timedelta(seconds=seconds)


def parse_time(text: str) -> datetime:
    """Parse an ISO 8601 time with a UTC offset, and return an aware datetime."""
    try:
        at = parse_datetime(text)
    except ValueError:
        at = None
    if at is None or at.utcoffset() is None:
        raise ArgumentTypeError(f"{text!r} is no time with a zone, such as 2027-01-31T08:00Z")
    return at


def parse_day(text: str) -> date:
    """Parse a day such as 2027-01-31. Refuse a day whose times no id can represent."""
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = date.min
    if not FIRST_DAY <= day <= LAST_DAY or text != day.isoformat():
        raise ArgumentTypeError(
            f"{text!r} is no day from {FIRST_DAY} to {LAST_DAY}, written as YYYY-MM-DD"
        )
    return day


def parse_size(text: str) -> int:
    """Parse a size such as 1024, 512M or 2G, and return bytes."""
    unit = SIZE_UNITS.get(text[-1:].upper(), 1)
    amount = parse_float(text[:-1] if unit > 1 else text) * unit
    if not 0 <= amount < 2**63:  # the largest number of PostgreSQL
        raise ArgumentTypeError(f"{text!r} is no size such as 1024, 512M or 2G")
    return int(amount)


def parse_room(text: str) -> int:
    """Parse a size above 0, such as 512M, and return bytes."""
    if not (room := parse_size(text)):
        raise ArgumentTypeError(f"{text!r} must be above 0")
    return room


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return a function that parses a whole number from `least` to `most`, both inclusive."""
    bounds = f"from {least} on" if most is None else f"from {least} to {most}"

    def parse_whole(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?\d{1,18}", text) else least - 1
        if number < least or (most is not None and number > most):
            raise ArgumentTypeError(f"{text!r} is no whole number {bounds}")
        return number

    return parse_whole


def parse_float(text: str) -> float:
    """Parse a number. Return NaN for other text, so that a comparison with bounds refuses it."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def number_between(unit: str, least: float, most: float) -> Callable[[str], float]:
    """Return a function that parses a number from `least` to `most`, both inclusive.

    Its errors name the unit, such as "seconds".
    """

    def parse_amount(text: str) -> float:
        amount = parse_float(text)
        if not least <= amount <= most:
            raise ArgumentTypeError(f"{text!r} is no number of {unit} from {least:g} to {most:.9g}")
        return amount

    return parse_amount
