"""Inspection of a channel: its settings, the status of its consumers, its dead jobs."""

from typing import Final

from django.db.models import Count, Q

from pulljobs.conf import settings
from pulljobs.management import lookups
from pulljobs.management.inspection import consumer, shared
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
from pulljobs.management.top.frame import ViewSize
from pulljobs.models import Channel

FIELDS: Final = ("title", "created_at", "changed_at", "dedupe_window", "paused_until")


def inspect(name: str) -> CommandResult:
    """Return the settings of a channel, the status of its consumers and their newest dead jobs."""
    channel = lookups.find_channel(name)
    consumers = lookups.find_consumers([name])
    frame = shared.read_status(shared.CONSUMER_PARTS, lambda: consumers)
    failures = consumer.read_failures(consumers)
    content = {
        "kind": "channel",
        "name": channel.name,
        **shared.field_values(channel, *FIELDS),
        "consumers": [json_content.consumer_content(frame, status) for status in frame.consumers],
        "failures": shared.failures_content(failures),
    }
    lines = [
        title(f"Channel {channel.name}"),
        FactsBlock(shared.format_facts(shared.field_values(channel, *FIELDS))),
        title("Consumers"),
        *tables.render_consumers(frame, "name", ViewSize()),
        *shared.render_failures(failures),
    ]
    return shared.status_result(frame, content, lines)


def list_all() -> CommandResult:
    """Return a list of the channels by name, at most `MAX_LISTED`, and the number of all."""
    rows = Channel.objects.using(settings().DATABASE).annotate(
        subscribed=Count("consumers", Q(consumers__deleted_at=None))
    )
    in_all, channels = rows.count(), list(rows.order_by("name")[: shared.MAX_LISTED])
    columns = [Column("channel"), Column("consumers", is_number=True), Column("paused until")]
    content = [
        {
            "channel": channel.name,
            "consumers": channel.subscribed,
            "paused_until": channel.paused_until,
        }
        for channel in channels
    ]
    table = TableBlock(
        columns,
        [
            [channel.name, f"{channel.subscribed:,}", shared.format_time(channel.paused_until)]
            for channel in channels
        ],
        "There is no channel.",
    )
    more = (
        [StyledText(f"and {in_all - len(channels):,} more", Tone.FAINT)]
        if in_all > len(channels)
        else []
    )
    return CommandResult({"channels": content, "in_all": in_all}, [table, *more])
