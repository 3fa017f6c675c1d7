"""Fire schedules that are due, as every worker does, until it is stopped.

With --once it ends when nothing is due.
"""

import time
from argparse import ArgumentParser
from collections.abc import Iterator
from typing import Any

from pulljobs import handlers
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import declaring
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.loop import choose_sleep, read_wait


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end when nothing is due")


def handle(*, once: bool, **options: Any) -> CommandResult | Iterator[CommandResult]:
    handlers.autodiscover()
    declaring.sync()
    if once:
        return CommandResult.from_facts({"slots": fire_due()})
    return _run()


def _run() -> Iterator[CommandResult]:
    while True:
        if slots := fire_due():
            yield CommandResult.from_facts({"slots": slots})
        time.sleep(choose_sleep(read_wait()))
