"""The data pipeline on Spark: history and messages to the lake, and back.

Verbs are the modules of `pulljobs.management.lake`.
"""

from argparse import ArgumentParser
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pulljobs.management import lake
from pulljobs.management.parsing import add_action, pair
from pulljobs.management.subcommands import Answer


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for found in iter_modules(lake.__path__):
        module = import_module(f"{lake.__name__}.{found.name}")
        _add_common(add_action(verbs, found.name, module))


def handle(**options: Any) -> Answer:
    from pulljobs.spark import session

    session.require()  # before the verb imports what may not be there
    answer: Answer = import_module(f"{lake.__name__}.{options['verb']}").handle(**options)
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
        type=pair,
        metavar="NAME=VALUE",
        help="a property of Spark's, may be repeated",
    )
