"""A `Consumer` whose task is cancelled: no message stays held."""

import asyncio
import time
from typing import Any

import pytest

from pulljobs.client import Consumer, session
from tests.client.broker import FakeBroker
from tests.client.test_flow import SOON, consumer_of, filled
from tests.sessions import PATIENCE_SECONDS


def holding(broker: FakeBroker, **options: Any) -> Consumer:
    """Return a consumer for three messages: one of them is handled, and two wait."""

    async def handle(message: Any) -> None:
        await asyncio.sleep(PATIENCE_SECONDS)

    return consumer_of([broker], handle, max_in_flight=3, **options)[0]


async def serve_until_held(consumer: Consumer, messages: int) -> "asyncio.Task[None]":
    serving = asyncio.create_task(consumer.serve())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while consumer.held < messages:
            await asyncio.sleep(0.01)
    await asyncio.sleep(SOON)
    return serving


def test_a_cancelled_consumer_releases_its_messages_uncharged() -> None:
    broker = filled(3)

    async def cancel() -> None:
        serving = await serve_until_held(holding(broker, graceful_timeout=SOON), 3)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(cancel())
    assert broker.states() == ["QUEUED"] * 3
    assert [job.deliveries for job in broker.jobs] == [0] * 3


def test_a_second_cancellation_ends_a_consumer_at_once() -> None:
    broker = filled(3)

    async def cancel() -> float:
        serving = await serve_until_held(holding(broker, graceful_timeout=PATIENCE_SECONDS), 3)
        began = time.monotonic()
        serving.cancel()
        await asyncio.sleep(SOON)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        return time.monotonic() - began

    assert asyncio.run(cancel()) < PATIENCE_SECONDS / 2


def test_the_end_of_the_event_loop_waits_for_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the loop cancels all tasks, so that none is left that could write outcomes."""
    monkeypatch.setattr(session, "FLUSH_SECONDS", PATIENCE_SECONDS)
    broker = filled(3)

    async def leave() -> None:
        await serve_until_held(holding(broker), 3)

    began = time.monotonic()
    asyncio.run(leave())
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
