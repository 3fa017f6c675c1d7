"""Give-up hooks are called for every job, whatever an earlier call did."""

import asyncio
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections, transaction

from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Channel
from pulljobs.worker.give_up_hooks import GiveUpHooks
from pulljobs.worker.thread_connections import LEFT_OPEN
from tests.factories import USING
from tests.sessions import PATIENCE_SECONDS
from tests.worker.claiming import unclaimed


def exits(job: ClaimedJob) -> None:
    sys.exit(1)


async def is_cancelled(job: ClaimedJob) -> None:
    raise asyncio.CancelledError


def given_up(number: int, on_giving_up: Callable[[ClaimedJob], Any]) -> ClaimedJob:
    job = unclaimed(number)
    job.handler = Handler(channel="c", consumer="c", function=print, on_giving_up=on_giving_up)
    return job


def test_a_connection_that_cannot_be_closed_ends_no_hook(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks, called = GiveUpHooks(), list[int]()

    def fail() -> None:
        raise RuntimeError("no luck")

    def break_connection(job: ClaimedJob) -> None:
        monkeypatch.setattr(connections[USING], "close", fail)

    with caplog.at_level(logging.WARNING):
        hooks.submit(given_up(1, break_connection))
        hooks.submit(given_up(2, lambda job: called.append(job.id)))
        hooks.end(time.monotonic() + PATIENCE_SECONDS)
    assert called == [2]
    assert "can't be closed: no luck" in caplog.text


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_a_hook_leaves_open_harms_no_later_hook(
    caplog: pytest.LogCaptureFixture,
) -> None:
    hooks = GiveUpHooks()

    def leave(job: ClaimedJob) -> None:
        transaction.atomic(using=USING).__enter__()
        Channel.objects.create(name="left")

    hooks.submit(given_up(1, leave))
    hooks.submit(given_up(2, lambda job: Channel.objects.create(name="kept")))
    hooks.end(time.monotonic() + PATIENCE_SECONDS)
    assert [channel.name for channel in Channel.objects.all()] == ["kept"]
    assert caplog.messages == [LEFT_OPEN % (1, USING)]


@pytest.mark.parametrize("ends", [exits, is_cancelled])
def test_a_hook_that_would_end_its_thread_is_logged_and_the_next_is_called(
    caplog: pytest.LogCaptureFixture, ends: Callable[[ClaimedJob], Any]
) -> None:
    hooks, called = GiveUpHooks(), list[int]()
    with caplog.at_level(logging.WARNING):
        hooks.submit(given_up(1, ends))
        hooks.submit(given_up(2, lambda job: called.append(job.id)))
        hooks.end(time.monotonic() + PATIENCE_SECONDS)
    assert called == [2]
    assert "on_giving_up of c/c failed" in caplog.text
