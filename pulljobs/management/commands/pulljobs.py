"""`manage.py pulljobs ...`: what operators run by hand or from cron."""

import json
import sys
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from pulljobs.errors import PulljobsError
from pulljobs.management import subcommands


class Command(BaseCommand):
    help = "Upkeep of pulljobs, and looks inside."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one line of JSON")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, module in _modules():
            described = (module.__doc__ or "").strip()
            action = actions.add_parser(name, help=described.partition("\n")[0])
            action.add_argument("--json", action="store_true", default=SUPPRESS)
            if hasattr(module, "add_arguments"):
                module.add_arguments(action)

    def handle(self, *args: Any, **options: Any) -> None:
        module = import_module(f"{subcommands.__name__}.{options['action']}")
        try:
            answer = module.handle(**options)
        except PulljobsError as error:
            raise CommandError(str(error)) from error
        shown = [json.dumps(answer.content, default=str)] if options["json"] else answer.lines
        for line in shown:
            self.stdout.write(line)
        if answer.exit_code:
            sys.exit(answer.exit_code)


def _modules() -> Iterator[tuple[str, ModuleType]]:
    for found in iter_modules(subcommands.__path__):
        yield found.name, import_module(f"{subcommands.__name__}.{found.name}")
