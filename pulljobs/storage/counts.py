"""How many jobs consumers have, for status pages: never more is read than up to a cap."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from pulljobs.models import Consumer
from pulljobs.states import State
from pulljobs.storage.statements import run

CAP: Final = 10_000


class Count(NamedTuple):
    consumer_id: int
    state: State
    jobs: int
    capped: bool
    """There are more, or may be."""
    oldest: datetime | None
    newest: datetime | None


def consumers(using: str) -> list[Consumer]:
    """Those that were not deleted, with their channels."""
    rows = Consumer.objects.using(using).filter(deleted_at=None)
    return list(rows.select_related("channel").order_by("channel__name", "name"))


def live(using: str, consumer_ids: Sequence[int]) -> list[Count]:
    """Of the states that have jobs; delivered ones are not among them."""
    params = {"consumer_ids": list(consumer_ids), "cap": CAP + 1}
    return [
        Count(id, State(state), min(count, CAP), count > CAP, oldest, newest)
        for id, state, count, oldest, newest in run(using, "counts", params)
    ]


def delivered(using: str) -> list[Count]:
    """Of the newest settlements of all consumers; if there are more, no count is complete."""
    rows = run(using, "delivered", {"settlements": CAP + 1})
    capped = any(id is None and count > CAP for id, count, *_times in rows)
    return [
        Count(id, State.DELIVERED, count, capped, oldest, newest)
        for id, count, oldest, newest in rows
        if id is not None
    ]
