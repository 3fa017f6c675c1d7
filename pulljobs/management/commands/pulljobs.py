"""`manage.py pulljobs ...`: what operators run by hand or from cron."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC
from importlib import import_module
from typing import Any, Final

import psycopg
from django.core.management.base import BaseCommand, CommandError, no_translations
from django.db import InterfaceError, OperationalError, ProgrammingError
from django.utils import timezone

from pulljobs.errors import (
    ConfigurationError,
    InvalidMessage,
    InvalidRegistration,
    PayloadTooLarge,
    PulljobsError,
    UnknownChannel,
    UnknownJob,
)
from pulljobs.management import subcommands
from pulljobs.management.output import Output
from pulljobs.management.parsing import Parser, add_action
from pulljobs.management.subcommands import FOUND, USAGE, Answer
from pulljobs.storage import schema

INTERRUPTED: Final = 130
MISTAKES: Final = (
    ConfigurationError,
    InvalidMessage,
    InvalidRegistration,
    PayloadTooLarge,
    UnknownChannel,
    UnknownJob,
)
"""Of whoever typed it. What else is raised tells how things are."""
FAILURES: Final = (
    OperationalError,
    InterfaceError,
    psycopg.OperationalError,  # where Django has no part in it
    psycopg.InterfaceError,
)
"""Of the database."""


class Command(BaseCommand):
    help = "Upkeep of pulljobs, and looks inside."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.__class__ = Parser  # Django makes one of its own
        parser.epilog = (
            f"Exit codes: {subcommands.FINE} all is well, {FOUND} something is wrong or could not "
            f"be done, {USAGE} what was asked makes no sense and nothing was changed."
        )
        parser.add_argument("--json", action="store_true", help="one line of JSON")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, module in subcommands.find_modules().items():
            add_action(actions, name, import_module(module))

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        coloured = True if options["force_color"] else False if options["no_color"] else None
        stream: Any = self.stdout._out
        output = Output(stream, as_json=options["json"], coloured=coloured)
        try:
            with timezone.override(UTC):  # of logs and nodes, not that of people's pages
                code = _done(output, options)
        except KeyboardInterrupt:
            self.stderr.write("Interrupted.")
            code = INTERRUPTED
        except BrokenPipeError:
            # Whoever read it has seen enough; what is left to flush goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = subcommands.FINE
        if code:
            sys.exit(code)


def _done(output: Output, options: dict[str, Any]) -> int:
    module = import_module(subcommands.find_modules()[options["action"]])
    try:
        answer = module.handle(**options, output=output)
        if not isinstance(answer, Answer):
            return _all_shown(output, answer)
        output.show(answer)
        return answer.exit_code
    except MISTAKES as error:
        raise CommandError(_line(error), returncode=USAGE) from error
    except PulljobsError as error:
        raise CommandError(_line(error), returncode=FOUND) from error
    except ProgrammingError as error:
        if text := schema.advice(error):
            raise CommandError(text, returncode=FOUND) from error
        raise
    except FAILURES as error:
        raise CommandError(f"The database fails: {_line(error)}", returncode=FOUND) from error


def _all_shown(output: Output, answers: Iterable[Answer]) -> int:
    """Until there are no more, or somebody has seen enough."""
    code = subcommands.FINE
    with suppress(KeyboardInterrupt):
        for answer in answers:
            output.show(answer)
            code = max(code, answer.exit_code)
    return code


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
