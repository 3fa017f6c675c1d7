"""A channel: its settings, how its consumers stand, and what died."""

from typing import Final

from django.db.models import Count, Q

from pulljobs.conf import settings
from pulljobs.management import lookups
from pulljobs.management.inspection import consumer, standing, wording
from pulljobs.management.output_blocks import (
    Column,
    FactsBlock,
    StyledText,
    TableBlock,
    Tone,
    title,
)
from pulljobs.management.subcommands import CommandResult
from pulljobs.management.top import json_content, tables
from pulljobs.management.top.tables import ViewSize
from pulljobs.models import Channel

STANDS: Final = ("title", "created_at", "changed_at", "dedupe_window", "paused_until")


def inspect(name: str) -> CommandResult:
    one = lookups.find_channel(name)
    consumers = lookups.find_consumers([name])
    now = standing.read(standing.OF_CONSUMERS, lambda: consumers)
    found = consumer.failures(consumers)
    told = {
        "kind": "channel",
        "name": one.name,
        **wording.fields(one, *STANDS),
        "consumers": [json_content.consumer(now, one) for one in now.standings],
        "failures": wording.failures_content(found),
    }
    lines = [
        title(f"Channel {one.name}"),
        FactsBlock(wording.facts(wording.fields(one, *STANDS))),
        title("Consumers"),
        *tables.consumers(now, "name", ViewSize()),
        *wording.failures(found),
    ]
    return standing.answer(now, told, lines)


def listed() -> CommandResult:
    rows = Channel.objects.using(settings().DATABASE).annotate(
        subscribed=Count("consumers", Q(consumers__deleted_at=None))
    )
    in_all, found = rows.count(), list(rows.order_by("name")[: wording.LISTED])
    columns = [Column("channel"), Column("consumers", is_number=True), Column("paused until")]
    told = [
        {"channel": one.name, "consumers": one.subscribed, "paused_until": one.paused_until}
        for one in found
    ]
    table = TableBlock(
        columns,
        [[one.name, f"{one.subscribed:,}", wording.moment(one.paused_until)] for one in found],
        "There is no channel.",
    )
    more = (
        [StyledText(f"and {in_all - len(found):,} more", Tone.FAINT)] if in_all > len(found) else []
    )
    return CommandResult({"channels": told, "in_all": in_all}, [table, *more])
