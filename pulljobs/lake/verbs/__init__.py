"""The data pipeline on Spark: history and messages to the lake, and back."""

# Each module of this package is a verb of its name. A module's docstring is its help.
# `add_arguments(parser)` is optional; `handle(**options)` returns a `CommandResult`. All verbs
# have --json, --master and repeated --conf NAME=VALUE. The last two are for `session.open_session`.
# The parser imports every verb, so a verb imports Spark inside its functions only.

from argparse import ArgumentParser
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pulljobs.management.parsing import add_action, parse_pair
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for entry in iter_modules(__path__):
        module = import_module(f"{__name__}.{entry.name}")
        _add_common(add_action(verbs, entry.name, module))


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import session

    session.require()  # before the verb imports libraries that may be missing
    answer: CommandResult = import_module(f"{__name__}.{options['verb']}").handle(**options)
    return answer


def _add_common(verb: ArgumentParser) -> None:
    verb.add_argument(
        "--master",
        help="where Spark runs, such as local[4] or spark://host:7077 (PULLJOBS['SPARK'])",
    )
    verb.add_argument(
        "--conf",
        action="append",
        default=[],
        type=parse_pair,
        metavar="NAME=VALUE",
        help="a property of Spark's, may be repeated",
    )
