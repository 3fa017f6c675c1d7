"""Print the SQL that lets a role do its part and no more; the owner of the tables runs it.

Again after every `migrate`: a new table is granted to nobody.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.conf import settings
from pulljobs.management.subcommands import CommandResult
from pulljobs.storage import grants
from pulljobs.storage.grants import Profile


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("role", metavar="ROLE", help="its name; the role is there, or made later")
    parser.add_argument(
        "--for",
        choices=list(grants.profiles()),
        default=Profile.APP.value,
        dest="profile",
        help="; ".join(f"{profile}: {meaning}" for profile, meaning in grants.profiles().items()),
    )


def handle(**options: Any) -> CommandResult:
    profile: str = options["profile"]
    made = grants.statements(settings().DATABASE, options["role"], profile)
    content = {"role": options["role"], "for": profile, "statements": made}
    return CommandResult(
        content, [f"-- {profile}: {grants.profiles()[profile]}", *(f"{one};" for one in made)]
    )
