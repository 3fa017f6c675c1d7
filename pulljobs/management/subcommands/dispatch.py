"""Publish the scheduled messages whose time has come, as every worker does."""

from typing import Any

from pulljobs import scheduling
from pulljobs.management.subcommands import Answer


def handle(**options: Any) -> Answer:
    return Answer.of({"published": scheduling.dispatch()})
