"""Print SQL that grants a role only the privileges it needs; the owner of the tables runs it.

Run it again after every `migrate`: no role has privileges on a new table.
"""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any, Final

from pulljobs.conf import settings
from pulljobs.management.subcommands import CommandResult
from pulljobs.storage import grants
from pulljobs.storage.grants import Profile

LONGEST: Final = 63
"""Length in bytes to which PostgreSQL shortens names."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "role",
        type=parse_role,
        metavar="ROLE",
        help="name of the role, which may be created later",
    )
    parser.add_argument(
        "--for",
        choices=list(grants.profiles()),
        default=Profile.APP.value,
        dest="profile",
        help="; ".join(f"{profile}: {meaning}" for profile, meaning in grants.profiles().items()),
    )


def handle(**options: Any) -> CommandResult:
    profile: str = options["profile"]
    statements = grants.statements(settings().DATABASE, options["role"], profile)
    content = {"role": options["role"], "for": profile, "statements": statements}
    return CommandResult(
        content,
        [
            f"-- {profile}: {grants.profiles()[profile]}",
            *(f"{statement};" for statement in statements),
        ],
    )


def parse_role(text: str) -> str:
    """Return the name of a role. Refuse a name that PostgreSQL would refuse or shorten."""
    if not 0 < len(text.encode(errors="replace")) <= LONGEST:
        raise ArgumentTypeError(f"{text!r} is no name of a role, which has 1 to {LONGEST} bytes")
    return text
