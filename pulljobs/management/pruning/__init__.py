"""Kinds of rows that `manage.py pulljobs prune` deletes: each module is the kind of its name."""

import os
import sys
from argparse import ArgumentParser
from getpass import getuser

from pulljobs.errors import ConfigurationError


def add_common_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of every kind."""
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be deleted, and change nothing"
    )
    parser.add_argument("--yes", action="store_true", help="delete without a confirmation")


def operator_name() -> str:
    """Name the user of this process for the audit trail."""
    try:
        return f"{getuser()} (command line)"
    except (KeyError, OSError):  # the user of a container may have no name
        return f"user {os.getuid()} (command line)"


def require_confirmation(*, yes: bool) -> None:
    """Raise `ConfigurationError` without `--yes` if stdin is not a terminal to ask on."""
    if not (yes or sys.stdin.isatty()):
        raise ConfigurationError(
            "There is no terminal for a confirmation: use --yes, or look first with --dry-run."
        )


def confirm(question: str, *, yes: bool) -> bool:
    """Ask the operator, or return True at once with `--yes`."""
    if yes:
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
