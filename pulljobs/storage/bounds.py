"""Publishing to consumers that bound the queued jobs of each key (`max_queued_per_key`)."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from django.db import transaction

from pulljobs.engine import key_bounds
from pulljobs.engine.key_bounds import Run
from pulljobs.engine.validation import Published
from pulljobs.storage import keys
from pulljobs.storage.sessions import LONGEST_SECONDS
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import call_on_commit


def publish(using: str, messages: Sequence[Mapping[str, Any]]) -> list[Published]:
    """Publish messages, given as parameters of publish_one.sql, and return a result for each.

    Each message is written in a transaction of its own, or in a savepoint of the caller's. To
    publish several together, the caller opens a transaction.
    """
    if len(messages) > 1:
        key_bounds.lock(_runner(using), messages)
    return [_publish(using, message) for message in messages]


def lock(using: str, channel: str, keys: Iterable[str | None]) -> None:
    """Lock all keys of messages that the caller will publish one by one in its transaction.

    Locked together, in one order, they cause no deadlock.
    """
    common = {"channel": channel, "only_consumer_id": None}
    key_bounds.lock(_runner(using), [{**common, "key": key} for key in keys])


def _runner(using: str) -> Run:
    """Return a function that runs the statements of a publish, each for a minute at most.

    They wait for other publishers of the same key until these end their transactions.
    """
    return partial(run, using, seconds=LONGEST_SECONDS)


def _publish(using: str, message: Mapping[str, Any]) -> Published:
    with transaction.atomic(using=using):
        published, freed = key_bounds.publish(_runner(using), message)
        if published.full is not None:
            transaction.set_rollback(True, using=using)
        elif freed:
            call_on_commit(using, partial(keys.free, using, freed))
    return published
