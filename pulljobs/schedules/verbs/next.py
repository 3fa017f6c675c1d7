"""Show the next slots of a schedule, or of a rule before a schedule is created with it.

next daily-report
next --cron "0 6 * * 1-5" --timezone Europe/Berlin
"""

from argparse import ArgumentParser
from datetime import UTC
from itertools import islice
from typing import Any

from pulljobs.conf import settings
from pulljobs.errors import InvalidSchedule
from pulljobs.management.output_blocks import StyledText
from pulljobs.management.parsing import parse_duration, whole_number
from pulljobs.management.subcommands import CommandResult
from pulljobs.schedules import reading
from pulljobs.schedules.rules import make_rule
from pulljobs.schedules.verbs.show import reading_table
from pulljobs.storage import nodes


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="name of the schedule")
    parser.add_argument("--cron", default="", help="rule in place of a schedule")
    parser.add_argument("--every", type=parse_duration, metavar="TIME", help="interval such as 5m")
    parser.add_argument("--timezone", default="UTC", help="time zone of --cron (%(default)s)")
    parser.add_argument(
        "--count", type=whole_number(1, 1000), default=reading.SHOWN_SLOTS, help="(%(default)s)"
    )


def handle(*, name: str | None, count: int, **options: Any) -> CommandResult:
    if (name is None) == (not options["cron"] and options["every"] is None):
        raise InvalidSchedule("name", "Give either the name of a schedule or a rule.")
    if name is not None:
        row = reading.find(name)
        rule, slots = row.rule, reading.upcoming(row, count)
        if rule.problem:
            raise InvalidSchedule("timezone", rule.problem)
    else:
        now = nodes.clock(settings().DATABASE).astimezone(UTC)
        given = {option: options[option] for option in ("cron", "every", "timezone")}
        rule = make_rule(now=now, **given)
        slots = list(reading.format_slots(rule, now, islice(rule.slots_after(now), count)))
    upcoming = [slot._asdict() for slot in slots]
    content = {"rule": rule.describe(), "upcoming": upcoming}
    return CommandResult(content, [StyledText(f"{rule.describe()}."), reading_table(upcoming)])
