"""Delete old history or dead jobs, in batches.

    prune history --dry-run
    prune history --older-than 90d
    prune dead --only orders/invoicing --older-than 30d --yes

`history` drops the days of messages and archive that are older than PULLJOBS['RETENTION'], as every
worker does, and other history that is kept as long. `dead` deletes DEAD jobs and records the user
in the audit trail. The history of the jobs stays. If it is interrupted, `operate` or a worker
continues it. --dry-run shows what would be deleted, and changes nothing.
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
    for entry in iter_modules(pruning.__path__):
        add_action(kinds, entry.name, import_module(f"{pruning.__name__}.{entry.name}"))


def handle(**options: Any) -> CommandResult:
    module: Any = import_module(f"{pruning.__name__}.{options['kind']}")
    result: CommandResult = module.handle(**options)
    return result
