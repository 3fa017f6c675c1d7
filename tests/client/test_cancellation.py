"""Cancellation of the task of a `Consumer` that holds messages."""

import asyncio
import time
from typing import Any

import pytest

from pulljobs.client import session
from tests.client.broker import FakeBroker
from tests.client.test_flow import SOON, consumer_of, filled
from tests.sessions import PATIENCE_SECONDS


async def serve_until_held(broker: FakeBroker, **options: Any) -> "asyncio.Task[None]":
    """Start a consumer, and return its task once it holds three messages, one with its handler."""
    has_begun = asyncio.Event()

    async def handle(message: Any) -> None:
        has_begun.set()
        await asyncio.sleep(PATIENCE_SECONDS)

    consumer, _ = consumer_of([broker], handle, max_in_flight=3, **options)
    serving = asyncio.create_task(consumer.serve())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await has_begun.wait()
        while consumer.held < 3:
            await asyncio.sleep(0.01)
    return serving


def test_a_cancelled_consumer_releases_its_messages_uncharged() -> None:
    broker = filled(3)

    async def cancel() -> None:
        serving = await serve_until_held(broker, graceful_timeout=SOON)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving

    asyncio.run(cancel())
    assert broker.states() == ["QUEUED"] * 3
    assert [job.deliveries for job in broker.jobs] == [0] * 3


def test_a_second_cancellation_ends_a_consumer_at_once() -> None:
    broker = filled(3)

    async def cancel() -> float:
        serving = await serve_until_held(broker, graceful_timeout=PATIENCE_SECONDS)
        began = time.monotonic()
        serving.cancel()
        await asyncio.sleep(SOON)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        return time.monotonic() - began

    assert asyncio.run(cancel()) < PATIENCE_SECONDS / 2


def test_the_end_of_the_event_loop_waits_for_no_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop ends without a wait for outcomes: it has cancelled all tasks that could write some."""
    monkeypatch.setattr(session, "FLUSH_SECONDS", PATIENCE_SECONDS)
    broker = filled(3)

    async def leave() -> None:
        await serve_until_held(broker)

    began = time.monotonic()
    asyncio.run(leave())
    assert time.monotonic() - began < PATIENCE_SECONDS / 2
