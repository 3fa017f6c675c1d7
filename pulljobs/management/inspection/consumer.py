"""Inspection of a consumer: settings, status, nodes and HTTP clients that serve it, dead jobs."""

from typing import Any, Final

from pulljobs.conf import settings
from pulljobs.management import lookups
from pulljobs.management.inspection import shared
from pulljobs.management.output_blocks import (
    Block,
    FactsBlock,
    StyledText,
    TableBlock,
    text_columns,
    title,
)
from pulljobs.management.subcommands import CommandResult
from pulljobs.management.top import json_content, tables
from pulljobs.management.top.frame import TopFrame, ViewSize
from pulljobs.models import Consumer, HttpClient
from pulljobs.storage import dead

SETTINGS: Final = (
    "type", "callback_url", "lease_duration", "protocol_lease_duration", "retry_strategy",
    "retry_jitter", "max_retries", "max_total_delay", "max_deliveries", "exclusive_keys",
    "hold_key_on_retry", "max_queued_per_key", "key_overflow", "key_limit_counts",
    "max_in_flight", "rate", "rate_burst", "rate_window", "limit_group",
    "max_in_flight_per_key", "rate_per_key", "fair_by_key", "max_waiting",
)  # fmt: skip
FIELDS: Final = (
    "title",
    "created_at",
    "changed_at",
    "paused_until",
    "throttled_until",
    "deleted_at",
)
CLIENT_FIELDS: Final = ("name", "host", "address", "agent", "first_seen_at", "seen_at")


def inspect(path: str) -> CommandResult:
    """Return all facts about the consumer with the path `CHANNEL/CONSUMER`."""
    consumer = lookups.find_consumer(path)
    frame = shared.read_status(shared.CONSUMER_PARTS, lambda: [consumer])
    contents = [json_content.consumer_content(frame, status) for status in frame.consumers]
    failures, clients = read_failures([consumer]), _read_clients(consumer)
    content = {
        "kind": "consumer",
        "name": consumer.path,
        **shared.field_values(consumer, *FIELDS),
        "settings": shared.field_values(consumer, *SETTINGS),
        "now": contents[0] if contents else None,
        "clients": clients,
        "failures": shared.failures_content(failures),
    }
    lines = [
        *_lines(consumer, frame),
        *_render_clients(clients),
        *shared.render_failures(failures),
    ]
    return shared.status_result(frame, content, lines)


def list_all() -> CommandResult:
    """Return a list of all consumers by name, with their status."""
    frame = shared.read_status(shared.CONSUMER_PARTS)
    content = {
        "consumers": [json_content.consumer_content(frame, status) for status in frame.consumers],
        "in_all": len(frame.consumers),
    }
    return shared.status_result(
        frame, content, list(tables.render_consumers(frame, "name", ViewSize()))
    )


def read_failures(consumers: list[Consumer]) -> list[tuple[str, dead.Dead]]:
    """Return the five newest dead jobs of all `consumers`, newest first, as (path, job)."""
    paths = {consumer.pk: consumer.path for consumer in consumers}
    jobs = dead.newest(settings().DATABASE, list(paths), shared.MAX_FAILURES)
    newest = sorted(jobs, key=lambda job: -job.id)[: shared.MAX_FAILURES]
    return [(paths[job.consumer_id], job) for job in newest]


def _read_clients(consumer: Consumer) -> list[dict[str, Any]]:
    """Return a consumer's HTTP clients, the latest first, at most `MAX_LISTED`.

    Maintenance keeps them for a day.
    """
    rows = HttpClient.objects.using(settings().DATABASE).filter(consumer=consumer)
    return list(rows.order_by("-seen_at", "-pk").values(*CLIENT_FIELDS)[: shared.MAX_LISTED])


def _render_clients(clients: list[dict[str, Any]]) -> list[Block]:
    if not clients:
        return []
    names = [name.replace("_", " ") for name in CLIENT_FIELDS]
    rows = [[shared.format_value(value) for value in client.values()] for client in clients]
    return [title("HTTP clients of the last day"), TableBlock(text_columns(*names), rows)]


def _lines(consumer: Consumer, frame: TopFrame) -> list[Block]:
    return [
        title(f"Consumer {consumer.path}"),
        FactsBlock(shared.format_facts(shared.field_values(consumer, *FIELDS)) + _serving(frame)),
        title("Now"),
        *tables.render_consumers(frame, "name", ViewSize()),
        title("Settings"),
        FactsBlock(shared.format_facts(shared.field_values(consumer, *SETTINGS))),
    ]


def _serving(frame: TopFrame) -> list[tuple[str, StyledText]]:
    served_by = waiting = shared.UNKNOWN
    for status in frame.consumers:
        waiting = str(status.waiting)
        if status.workers is not None:
            served_by = ", ".join(worker.node.name for worker in status.workers) or "no node"
    return [("served by", StyledText(served_by)), ("waiting pulls", StyledText(waiting))]
