"""Who sits at the terminal, and whether he means it."""

import os
import sys
from getpass import getuser

from pulljobs.errors import ConfigurationError


def name() -> str:
    """For the audit trail: who runs this command on which machine can be seen in its logs."""
    try:
        return f"{getuser()} (command line)"
    except (KeyError, OSError):  # a container may have no name for its user
        return f"user {os.getuid()} (command line)"


def must_be_there(*, yes: bool) -> None:
    """ConfigurationError where there is nobody to ask, and no `--yes`."""
    if not (yes or sys.stdin.isatty()):
        raise ConfigurationError("Nobody is there to ask: say --yes, or look first with --dry-run.")


def agrees(question: str, *, yes: bool) -> bool:
    if yes:
        return True
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")
