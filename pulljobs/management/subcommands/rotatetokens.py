"""Seal the copies of tokens with the newest key, and name those that no key opens."""

from typing import Any

from pulljobs import encryption, tokens
from pulljobs.errors import ConfigurationError
from pulljobs.management.subcommands import CommandResult


def handle(**options: Any) -> CommandResult:
    if not encryption.is_available():
        raise ConfigurationError("Nothing is sealed here: pip install cryptography first.")
    return CommandResult.from_facts(tokens.rotate()._asdict())
