"""Delete what is not needed any more, in batches: old history, or dead jobs.

    prune history --dry-run
    prune history --older-than 90d
    prune dead --only orders/invoicing --older-than 30d --yes

`history` drops the days of messages and archive that PULLJOBS['RETENTION'] lets go, as every
worker does, and what else is kept as long. `dead` deletes DEAD jobs, whose history stays, and
writes to the audit trail who did it; cut off, it goes on with `operate`. --dry-run only tells.
"""

from argparse import ArgumentParser
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from pulljobs.management import pruning
from pulljobs.management.parsing import add_action
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", required=True, metavar="KIND")
    for found in iter_modules(pruning.__path__):
        add_action(kinds, found.name, import_module(f"{pruning.__name__}.{found.name}"))


def handle(**options: Any) -> CommandResult:
    module: Any = import_module(f"{pruning.__name__}.{options['kind']}")
    answer: CommandResult = module.handle(**options)
    return answer
