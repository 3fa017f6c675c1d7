"""Publish scheduled messages that are due, as every worker does."""

from typing import Any

from pulljobs import scheduling
from pulljobs.management.subcommands import CommandResult


def handle(**options: Any) -> CommandResult:
    return CommandResult.from_facts({"published": scheduling.dispatch()})
