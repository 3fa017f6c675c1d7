"""Arguments of commands: their help, their kinds, and mistakes that are told in a line."""

import math
import re
from argparse import SUPPRESS, ArgumentTypeError, RawDescriptionHelpFormatter
from collections.abc import Callable
from datetime import datetime, timedelta
from inspect import cleandoc
from types import ModuleType
from typing import Any, Final, NoReturn

from django.core.management.base import CommandError, CommandParser
from django.utils.dateparse import parse_datetime

from pulljobs.management.subcommands import EXIT_USAGE

UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST: Final = timedelta(days=36_500)


class Parser(CommandParser):
    """No page of usage before what is wrong; flags may stand anywhere between the arguments."""

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
    """The module's docstring is its help, the first line of it that in the list."""
    told = cleandoc(module.__doc__ or "").replace("%", "%%")
    action: CommandParser = actions.add_parser(
        name,
        help=told.partition("\n")[0],
        description=told,
        formatter_class=RawDescriptionHelpFormatter,
    )
    if hasattr(module, "add_arguments"):
        module.add_arguments(action)
    action.add_argument("--json", action="store_true", default=SUPPRESS, help="one line of JSON")
    for flag in ("--no-color", "--force-color"):  # as all of Django's commands have them
        action.add_argument(flag, action="store_true", default=SUPPRESS, help=SUPPRESS)
    return action


def pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def span(text: str) -> timedelta:
    """Of seconds, or of a number with s, m, h or d."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    seconds = float(match[1]) * UNITS[match[2] or "s"] if match else math.inf
    if seconds > LONGEST.total_seconds():
        raise ArgumentTypeError(f"{text!r} is no time such as 90, 5m, 12h or 30d")
    return timedelta(seconds=seconds)


def moment(text: str) -> datetime:
    try:
        at = parse_datetime(text)
    except ValueError:
        at = None
    if at is None or at.utcoffset() is None:
        raise ArgumentTypeError(f"{text!r} is no time with a zone, such as 2027-01-31T08:00Z")
    return at


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """A number from there on, or up to there."""
    bounds = f"from {least} on" if most is None else f"from {least} to {most}"

    def read(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?\d{1,18}", text) else least - 1
        if number < least or (most is not None and number > most):
            raise ArgumentTypeError(f"{text!r} is no whole number {bounds}")
        return number

    return read


def number(text: str) -> float:
    """NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def amount(of: str, least: float, most: float) -> Callable[[str], float]:
    """Of seconds, say, from the one to the other."""

    def read(text: str) -> float:
        found = number(text)
        if not least <= found <= most:
            raise ArgumentTypeError(f"{text!r} is no number of {of} from {least:g} to {most:.9g}")
        return found

    return read
