from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Any

import pytest

from pulljobs import schedules
from pulljobs.models import Consumer, Message
from pulljobs.schedules.models import Schedule, Slot
from pulljobs.storage import nodes
from tests.factories import USING, ConsumerFactory
from tests.sessions import query

Make = Callable[..., Schedule]


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


@pytest.fixture
def make(consumer: Consumer) -> Make:
    """Return a function that creates a schedule, by default with a slot each minute."""

    def make_schedule(name: str = "each-minute", **options: Any) -> Schedule:
        rule = {} if "every" in options else {"cron": "* * * * *"}
        options = {"channel": consumer.channel.name, "payload": {"name": name}, **rule, **options}
        return schedules.create(name, **options)

    return make_schedule


def now() -> datetime:
    return nodes.clock(USING).astimezone(UTC)


def make_due(row: Schedule, count: int = 1) -> list[datetime]:
    """Set a schedule back, so that its newest `count` past slots are due. Return these slots."""
    row = reread(row)
    row.rule_since = now() - timedelta(days=30)
    if row.every and row.next_slot is not None and row.starts_at is not None:
        row.starts_at -= 100_000 * row.every
    slots: list[datetime] = []
    span, until = timedelta(minutes=1), now()
    while len(slots) < count:
        span *= 4
        past = takewhile(lambda slot: slot <= until, row.rule.slots_after(until - span))
        slots = [slot for slot in past if row.rule.fires_at(slot, row.name) <= until]
    slots = slots[-count:]
    row.next_slot = slots[0]
    row.due_at = row.rule.fires_at(slots[0], row.name)
    row.save()
    return slots


def reread(row: Schedule) -> Schedule:
    return Schedule.objects.using(USING).get(pk=row.pk)


def reasons(row: Schedule) -> list[str]:
    """Return the reasons of the recorded slots of a schedule, in the order of the slots."""
    rows = Slot.objects.using(USING).filter(schedule_id=row.pk).order_by("slot_at")
    return list(rows.values_list("reason", flat=True))


def recorded(row: Schedule) -> list[datetime]:
    rows = Slot.objects.using(USING).filter(schedule_id=row.pk).order_by("slot_at")
    return list(rows.values_list("slot_at", flat=True))


def message_ids(row: Schedule) -> list[str]:
    """Return the client message ids of the messages of a schedule, in the order of publishing."""
    rows = Message.objects.using(USING).filter(client_message_id__startswith=f"{row.name}:")
    return [str(id) for id in rows.order_by("id").values_list("client_message_id", flat=True)]


def explain(text: str) -> str:
    return "\n".join(line for (line,) in query(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) {text}"))
