"""Encrypt the copies of tokens with the newest key, and list those that no key decrypts."""

from typing import Any

from pulljobs import encryption, tokens
from pulljobs.errors import ConfigurationError
from pulljobs.management.subcommands import CommandResult


def handle(**options: Any) -> CommandResult:
    if not encryption.is_available():
        raise ConfigurationError("Encryption is not available: pip install cryptography first.")
    return CommandResult.from_facts(tokens.rotate()._asdict())
