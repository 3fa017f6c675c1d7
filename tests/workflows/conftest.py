from collections.abc import Sequence
from typing import Any

import pytest

from pulljobs import batches, pulling
from pulljobs.batches import OpenBatch
from pulljobs.engine import outcomes
from pulljobs.models import Consumer, Message
from pulljobs.workflows.batches import looking
from tests.factories import USING, ConsumerFactory, claimed

BATCH = "Pulljobs-Batch"


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


@pytest.fixture
def report() -> Consumer:
    """Return a consumer that gets the callbacks of batches."""
    return ConsumerFactory.create()


def fill(consumer: Consumer, members: int, report: Consumer | None = None) -> OpenBatch:
    """Make a closed batch with that many members. Its callbacks, if any, go to `report`."""
    channel = "" if report is None else report.channel.name
    events = () if report is None else ("complete", "success", "dead")
    on: dict[str, Any] = {f"on_{event}": (channel, event) for event in events}
    with batches.batch("nightly", **on) as made:
        made.publish_many(consumer.channel.name, [f"{n}" for n in range(members)])
    return made


def settle(consumer: Consumer, delivered: int = 0, dead: int = 0) -> None:
    """Settle members as a worker does, but do not check if the batch is complete."""
    held = claimed(consumer, delivered + dead)
    assert len(held) == delivered + dead
    good = [outcomes.deliver(each) for each in held[:delivered]]
    bad = [outcomes.reject(each, "bad") for each in held[delivered:]]
    for part in (good, bad):
        assert len(pulling.finish(part).states) == len(part)


def sweep() -> bool:
    return looking.sweep_all(USING)


def callbacks(report: Consumer) -> list[Message]:
    """Return the callbacks that were published to `report`, in the order of their ids."""
    return list(Message.objects.filter(channel=report.channel).order_by("id"))


def endings(report: Consumer) -> list[tuple[str, int]]:
    """Return the event and the round of each callback."""
    headers: Sequence[dict[str, str]] = [message.headers for message in callbacks(report)]
    return [(each[f"{BATCH}-Event"], int(each[f"{BATCH}-Round"])) for each in headers]
