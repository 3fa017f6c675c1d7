"""The data pipeline on Spark: history and messages to the lake, and back."""

# Each module of this package is a verb of its name. A module's docstring is its help.
# `add_arguments(parser)` is optional; `handle(**options)` returns a `CommandResult` or several. All
# verbs have --json, --master and repeated --conf NAME=VALUE. The last two are for
# `session.open_session`.
# The parser imports every verb, so a verb imports Spark inside its functions only.

from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Final

from pulljobs.management.parsing import add_action, parse_pair
from pulljobs.management.subcommands import CommandResult

WITHOUT_LAKE: Final = frozenset({"consume", "package", "publish", "release"})
"""Verbs that need no lake."""


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for entry in iter_modules(__path__):
        module = import_module(f"{__name__}.{entry.name}")
        _add_common(add_action(verbs, entry.name, module))


def handle(**options: Any) -> CommandResult | Iterator[CommandResult]:
    from pulljobs.lake.spark import failures, session

    verb = options["verb"]
    session.require()  # before the verb imports libraries that may be missing
    location = "" if verb in WITHOUT_LAKE else _find_location()
    with failures.raising_store_errors(location) if location else nullcontext():
        module = import_module(f"{__name__}.{verb}")
        answer: CommandResult | Iterator[CommandResult] = module.handle(**options)
    return answer


def _find_location() -> str:
    from pulljobs.lake.spark import session, tables

    session.require_lake()
    return tables.location()


def _add_common(verb: ArgumentParser) -> None:
    verb.add_argument(
        "--master",
        "--remote",
        metavar="URL",
        help="where Spark runs, such as local[4], spark://host:7077 or sc://host:15002, a server "
        "of Spark Connect (PULLJOBS['SPARK'])",
    )
    verb.add_argument(
        "--conf",
        action="append",
        default=[],
        type=parse_pair,
        metavar="NAME=VALUE",
        help="a property of Spark's, may be repeated",
    )
