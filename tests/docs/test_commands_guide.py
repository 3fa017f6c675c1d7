"""Commands print what their guide shows and what is written here, except for ids and times."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, timedelta
from io import StringIO
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import override_settings

from pulljobs import handlers, ids, operating
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, Node, Producer
from pulljobs.storage import jobs, nodes, partition_making, partitions
from pulljobs.storage.partitions import Partition
from tests.days import no_days
from tests.factories import USING, ChannelFactory, ConsumerFactory, JobFactory, published, taken
from tests.guides import texts
from tests.handling import registry_of_its_own

GUIDE: Final = "docs/guides/commands.md"
BROKER: Final = """
[initial-channels]
news=News
[initial-channel-tokens]
news=secret
[initial-producers]
[scheduler]
"""
REPORT: Final = {
    "serves": ["orders/invoicing"],
    "loops": {"fetcher": {"alive": True, "last_pass_seconds": 0.1, "failures": 0}},
    "circuits": {},
    "running": [],
    "held": 0,
    "done": 1532,
}
VARYING: Final = (
    (r"\b[0-9a-v]{20}\b", "ID"),
    (r"\b\d{18,19}\b", "NUMBER"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?( UTC)?", "TIME"),
    (r"\d{4}-\d\d-\d\d", "DAY"),
    (r"_\d{8}\b", "_DAY"),
    (r"\d+(\.\d+)? (ms|s|min|h|d|bytes|kB|MB)( \d+ (s|min|h))?\b", "SIZE"),
    (r"[▁▂▃▄▅▆▇█ ]*[▁▂▃▄▅▆▇█]", " TREND"),
    (r"(?m)^(\S+_DAY|DAY)( +)[\d,]+", r"\1\2ROWS"),
    (r" +", " "),
    (r"[\d.]+ SIZE SIZE SIZE TREND", "FLOW"),
    (r"[≈ \d.]+ settled/s( TREND)?", " FLOW"),
)


def settled(text: str) -> list[str]:
    """Return the lines of an output, with placeholders for ids, times and so on."""
    for pattern, placeholder in VARYING:
        text = re.sub(pattern, placeholder, text)
    return [line.strip() for line in text.strip().splitlines()]


@pytest.fixture
def world(
    transactional_db: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """Yield the ids of jobs in a small shop, by the names that stand for them in the guide."""
    monkeypatch.setattr("pulljobs.management.top.frame.PATIENCE", timedelta(minutes=1))
    monkeypatch.chdir(tmp_path)
    Path("webhook-broker.cfg").write_text(BROKER)
    Path("orders.jsonl").write_text('{"order": 8}\n{"order": 9}\n')
    with no_days(), override_settings(PULLJOBS={"PARTITIONS_AHEAD": 2}):
        operating.maintain()
        yield from _filled()


def _filled() -> Iterator[dict[str, str]]:
    today = nodes.clock(USING).astimezone(UTC).date()
    for table in partitions.PARTITIONED:
        partition_making._make(USING, Partition(table, today - timedelta(days=100)))
    channel = ChannelFactory.create(name="orders")
    Producer.objects.create(name="shop")
    nodes.register(USING, NODE, "web-1:4711")
    Node.objects.update(report=REPORT, heartbeat_at=Now())
    invoicing: Consumer = ConsumerFactory.create(
        channel=channel, name="invoicing", retry_strategy="5,30,60", retry_jitter=0.2
    )
    [dead] = published(invoicing, payload={"order": 3})
    held = Held(dead, taken(invoicing, dead))
    jobs.finish(USING, [outcomes.reject(held, "BankError: there is no account 4711")])
    for _ in range(3):
        JobFactory.create(consumer=invoicing, state="DELIVERED")
    [waiting] = published(invoicing, delay=timedelta(minutes=20))
    ConsumerFactory.create(channel=channel, name="mailing")
    published(invoicing)
    with registry_of_its_own():
        handlers.handler(channel="orders", consumer="invoicing")(print)
        yield {"JOB": ids.encode(dead), "WAITING": ids.encode(waiting)}


NODE: Final = UUID("7f1c51f5-6a0c-4f0c-9a57-2f1f0b7c9d11")
PARTITIONS: Final = """
pulljobs_message
DAY         ROWS, ABOUT     SIZE  PARTITION
2026-08-13            0  73.7 kB  pulljobs_message_20260813
2026-11-21            6  98.3 kB  pulljobs_message_20261121
2026-11-22            0  73.7 kB  pulljobs_message_20261122
2026-11-23            0  73.7 kB  pulljobs_message_20261123

pulljobs_archived_job
DAY         ROWS, ABOUT     SIZE  PARTITION
2026-08-13            0    41 kB  pulljobs_archived_job_20260813
2026-11-21            4  81.9 kB  pulljobs_archived_job_20261121
2026-11-22            0    41 kB  pulljobs_archived_job_20261122
2026-11-23            0    41 kB  pulljobs_archived_job_20261123
"""
MAINTENANCE: Final = {
    "maintain": "made none\ndropped none\nnot owned none",
    "partitions": PARTITIONS,
    "reap": "given back 0",
    "operate": "No action is unfinished.",
    "dispatch": "published 0",
    "syncconsumers": "consumers orders/invoicing",
    "rotatetokens": "resealed 0\nkept 4\nunreadable none\nwithout copy 0",
    "loadbroker webhook-broker.cfg": "RESULT ENTRY\nmade channel news\n"
    "elsewhere [scheduler]: see PULLJOBS['MIN_SCHEDULE_DELAY'].",
}
"""Output of the commands whose output the guide does not show."""


def ran(command: str, known: dict[str, str]) -> str:
    for name, id in known.items():
        command = re.sub(rf"\b{name}\b", id, command)
    _python, _manage, *words = shlex.split(command)
    output = StringIO()
    with suppress(SystemExit):
        call_command(*words, stdout=output)
    return output.getvalue()


@pytest.mark.owner
def test_commands_print_what_the_guide_shows(world: dict[str, str]) -> None:
    commands, shown = texts(GUIDE, "sh"), texts(GUIDE, "text")
    assert len(commands) == len(shown)
    for command, text in zip(commands, shown, strict=True):
        assert settled(ran(command, world)) == settled(text), command


@pytest.mark.owner
def test_maintenance_commands_print_their_results(world: dict[str, str]) -> None:
    for verb, text in MAINTENANCE.items():
        assert settled(ran(f"python manage.py pulljobs {verb}", world)) == settled(text), verb
