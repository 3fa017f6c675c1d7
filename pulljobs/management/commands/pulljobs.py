"""Command `manage.py pulljobs VERB`, which operators run by hand or from cron."""

import sys
from argparse import ArgumentParser
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC
from importlib import import_module
from io import BytesIO, StringIO, TextIOWrapper
from typing import Any, Final

import psycopg
from django.core.management.base import BaseCommand, CommandError, no_translations
from django.db import InterfaceError, InternalError, OperationalError
from django.utils import timezone

from pulljobs.conf import WORKER_CHECKS
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
from pulljobs.management.subcommands import EXIT_PROBLEM, EXIT_USAGE, CommandResult
from pulljobs.storage import schema

INTERRUPTED: Final = 130
USAGE_ERRORS: Final = (
    ConfigurationError,
    InvalidMessage,
    InvalidRegistration,
    PayloadTooLarge,
    UnknownChannel,
    UnknownJob,
)
"""Errors in the arguments of a command. Other errors report the state of the system."""
DATABASE_ERRORS: Final = (
    OperationalError,
    InterfaceError,
    psycopg.OperationalError,  # from connections that Django does not own
    psycopg.InterfaceError,
)
"""Errors of the database's operation, such as a lost connection or a timeout."""


class Command(BaseCommand):
    requires_system_checks = (WORKER_CHECKS,)
    """Checks of models connect to the database from Django 6.1 on, and would fail before `top`."""
    help = "Inspect and maintain pulljobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.__class__ = Parser  # Django creates its own parser
        parser.epilog = (
            f"Exit codes: {subcommands.EXIT_OK} success, {EXIT_PROBLEM} something is wrong or "
            f"failed, {EXIT_USAGE} the arguments are invalid and nothing was changed."
        )
        parser.add_argument("--json", action="store_true", help="one line of JSON")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, module in subcommands.find_modules().items():
            add_action(actions, name, import_module(module))

    @no_translations
    def handle(self, *args: Any, **options: Any) -> None:
        coloured = True if options["force_color"] else False if options["no_color"] else None
        _replace_closed_streams()
        stream: Any = self.stdout._out
        output = Output(stream or sys.stdout, as_json=options["json"], coloured=coloured)
        try:
            with timezone.override(UTC):  # the zone of logs and nodes, not that of web pages
                code = _run_verb(output, options)
        except KeyboardInterrupt:
            self.stderr.write("Interrupted.")
            code = INTERRUPTED
        if code:
            sys.exit(code)


def _run_verb(output: Output, options: dict[str, Any]) -> int:
    module = import_module(subcommands.find_modules()[options["action"]])
    try:
        result = module.handle(**options, output=output)
        if not isinstance(result, CommandResult):
            return _show_all(output, result)
        _show(output, result)
        return result.exit_code
    except USAGE_ERRORS as error:
        raise CommandError(_join_lines(error), returncode=EXIT_USAGE) from error
    except PulljobsError as error:
        raise CommandError(_join_lines(error), returncode=EXIT_PROBLEM) from error
    except (*schema.UNUSABLE, InternalError) as error:
        if text := schema.advice(error):
            raise CommandError(text, returncode=EXIT_PROBLEM) from error
        raise
    except DATABASE_ERRORS as error:
        text = schema.advice(error) or f"The database fails: {_join_lines(error)}"
        raise CommandError(text, returncode=EXIT_PROBLEM) from error


def _show_all(output: Output, results: Iterable[CommandResult]) -> int:
    """Print the results of a verb as it yields them, until it ends or the user presses Ctrl-C.

    It also ends when the reader of the output closes the pipe. Return the highest exit code.
    """
    code = subcommands.EXIT_OK
    with suppress(KeyboardInterrupt):
        for result in results:
            code = max(code, result.exit_code)
            if not _show(output, result):
                break
    return code


def _show(output: Output, result: CommandResult) -> bool:
    """Print a result. Return False if its reader, such as `head`, has closed the pipe.

    Raise CommandError if the result can't be written, for example to a full disk.
    """
    try:
        output.show(result)
    except OSError as error:
        sys.stdout = StringIO()  # Else the exit would fail to write the rest.
        if not isinstance(error, BrokenPipeError):
            text = f"The output can't be written: {error}"
            raise CommandError(text, returncode=EXIT_PROBLEM) from error
        return False
    return True


def _replace_closed_streams() -> None:
    """Let stdin, stdout and stderr be empty streams where the caller has closed them.

    Python has no streams for them then.
    """
    sys.stdin = sys.stdin or TextIOWrapper(BytesIO())
    sys.stdout = sys.stdout or StringIO()
    sys.stderr = sys.stderr or StringIO()


def _join_lines(error: Exception) -> str:
    return " ".join(str(error).split())
