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
        Count(
            row.consumer_id,
            State(row.state),
            min(row.jobs, CAP),
            row.jobs > CAP,
            row.oldest,
            row.newest,
        )
        for row in run(using, "counts", params)
    ]


def delivered(using: str) -> list[Count]:
    """Of the newest settlements of all consumers; if there are more, no count is complete."""
    rows = run(using, "delivered", {"settlements": CAP + 1})
    capped = any(row.consumer_id is None and row.jobs > CAP for row in rows)
    return [
        Count(row.consumer_id, State.DELIVERED, row.jobs, capped, row.oldest, row.newest)
        for row in rows
        if row.consumer_id is not None
    ]
