"""List, show, fire, pause and backfill schedules, and fire those that are due."""

# Each module of this package is a verb of `manage.py pulljobs schedules`, named after the module,
# as in `pulljobs.management.subcommands`.

from argparse import ArgumentParser
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pulljobs.errors import PulljobsError
from pulljobs.management.parsing import add_action
from pulljobs.management.subcommands import EXIT_USAGE, CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for entry in iter_modules(__path__):
        add_action(verbs, entry.name, import_module(f"{__name__}.{entry.name}"))


def handle(**options: Any) -> CommandResult:
    from django.core.management.base import CommandError

    verb: Any = import_module(f"{__name__}.{options['verb']}")
    try:
        result: CommandResult = verb.handle(**options)
    except (PulljobsError, ValueError) as error:
        raise CommandError(str(error), returncode=EXIT_USAGE) from error
    return result
