"""A consumer: its settings, how it stands, who serves it, and what died."""

from typing import Final

from pulljobs.conf import settings
from pulljobs.management import lookups
from pulljobs.management.inspection import standing, wording
from pulljobs.management.output_blocks import Block, FactsBlock, StyledText, title
from pulljobs.management.subcommands import CommandResult
from pulljobs.management.top import json_content, tables
from pulljobs.management.top.frame import TopFrame
from pulljobs.management.top.tables import ViewSize
from pulljobs.models import Consumer
from pulljobs.storage import dead

SETTINGS: Final = (
    "type", "callback_url", "lease_duration", "protocol_lease_duration", "retry_strategy",
    "retry_jitter", "max_retries", "max_total_delay", "max_deliveries", "exclusive_keys",
    "hold_key_on_retry", "max_queued_per_key", "key_overflow", "key_limit_counts",
    "max_in_flight", "max_waiting",
)  # fmt: skip
STANDS: Final = ("title", "created_at", "changed_at", "paused_until", "deleted_at")


def inspect(place: str) -> CommandResult:
    one = lookups.find_consumer(place)
    now = standing.read(standing.OF_CONSUMERS, lambda: [one])
    died = failures([one])
    told = {
        "kind": "consumer",
        "name": place_of(one),
        **wording.fields(one, *STANDS),
        "settings": wording.fields(one, *SETTINGS),
        "now": next((json_content.consumer(now, found) for found in now.standings), None),
        "failures": wording.failures_content(died),
    }
    return standing.answer(now, told, _lines(one, now, died))


def listed() -> CommandResult:
    now = standing.read(standing.OF_CONSUMERS)
    told = {
        "consumers": [json_content.consumer(now, one) for one in now.standings],
        "in_all": len(now.standings),
    }
    return standing.answer(now, told, list(tables.consumers(now, "name", ViewSize())))


def place_of(one: Consumer) -> str:
    return f"{one.channel.name}/{one.name}"


def failures(consumers: list[Consumer]) -> list[tuple[str, dead.Dead]]:
    """The newest dead jobs of all of them, the newest first."""
    places = {one.pk: place_of(one) for one in consumers}
    found = dead.newest(settings().DATABASE, list(places), wording.FAILURES)
    newest = sorted(found, key=lambda job: -job.id)[: wording.FAILURES]
    return [(places[job.consumer_id], job) for job in newest]


def _lines(one: Consumer, now: TopFrame, found: list[tuple[str, dead.Dead]]) -> list[Block]:
    return [
        title(f"Consumer {place_of(one)}"),
        FactsBlock([*wording.facts(wording.fields(one, *STANDS)), *_serving(now)]),
        title("Now"),
        *tables.consumers(now, "name", ViewSize()),
        title("Settings"),
        FactsBlock(wording.facts(wording.fields(one, *SETTINGS))),
        *wording.failures(found),
    ]


def _serving(now: TopFrame) -> list[tuple[str, StyledText]]:
    by = waiting = standing.NOT_KNOWN
    for one in now.standings:
        waiting = str(one.waiting)
        if one.workers is not None:
            by = ", ".join(worker.node.name for worker in one.workers) or "nobody"
    return [("served by", StyledText(by)), ("pulls that wait", StyledText(waiting))]
