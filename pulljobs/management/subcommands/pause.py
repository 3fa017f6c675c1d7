"""Stop claims of the jobs of channels or consumers. Jobs in flight go on.

    pause orders/invoicing --for 2h
    pause orders news --yes

Without a time the pause lasts until `resume`. The command records the user in the audit trail.
"""

from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import transaction

from pulljobs import auditing, operating
from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.errors import ConfigurationError
from pulljobs.management import job_actions, lookups
from pulljobs.management.parsing import parse_duration, parse_time
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import Channel, Consumer
from pulljobs.storage import nodes

ENDLESS: Final = timedelta(days=36_500)


def add_arguments(parser: ArgumentParser) -> None:
    add_names(parser)
    ends = parser.add_mutually_exclusive_group()
    ends.add_argument(
        "--for", dest="length", type=parse_duration, metavar="TIME", help="length, such as 2h"
    )
    ends.add_argument("--until", type=parse_time, metavar="TIME", help="end, with a time zone")
    job_actions.add_confirmation(parser, "pause")


def add_names(parser: ArgumentParser) -> None:
    """Add the argument that names channels and consumers to a parser."""
    parser.add_argument(
        "names", nargs="+", metavar="CHANNEL[/CONSUMER]", help="names of channels or consumers"
    )


def handle(
    *, length: timedelta | None, until: datetime | None, names: list[str], **options: Any
) -> CommandResult:
    now = nodes.clock(settings().DATABASE)
    end = until or now + (ENDLESS if length is None else length)
    if end <= now:
        raise ConfigurationError(f"The end of the pause must be in the future, not {end}.")
    text = (
        " until `resume`"
        if until is None and length is None
        else f" until {times.format_time(end)}"
    )
    return set_pause("pause", "paused", names, end, text, options)


def set_pause(
    verb: str, done: str, names: list[str], end: datetime | None, text: str, options: dict[str, Any]
) -> CommandResult:
    """Pause channels and consumers until `end`, or resume them if it is None, once confirmed.

    `verb`, `done` and `text` are words for the output, such as "pause", "paused" and " until ...".
    Each change gets an entry in the audit trail.
    """
    holders = [find_token_holder(name) for name in dict.fromkeys(names)]
    try:
        operating.check_pause(end)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error
    listed = ", ".join(holder.describe() for holder in holders)
    content = {"names": list(dict.fromkeys(names)), "until": end, done: False}
    if options["dry_run"]:
        return CommandResult(content, [f"{listed}: would be {done}{text}."])
    job_actions.require_confirmation(yes=options["yes"])
    if not job_actions.confirm(f"{verb.capitalize()} {listed}{text}?", yes=options["yes"]):
        return CommandResult(content, ["Nothing was changed."])
    with transaction.atomic(using=settings().DATABASE):
        for holder in holders:
            operating.pause(holder, end)
            auditing.note_pause(holder, end, by=job_actions.operator_name())
    return CommandResult({**content, done: True}, [f"{listed}: {done}{text}."])


def find_token_holder(name: str) -> Channel | Consumer:
    """Return the channel `CHANNEL` or consumer `CHANNEL/CONSUMER`, or raise ConfigurationError."""
    return lookups.find_consumer(name) if "/" in name else lookups.find_channel(name)
