"""Rows of clients that pull over HTTP, for status pages.

Clients choose their names, so the number of rows is bounded.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from django.db.models.functions import Now

from pulljobs.engine.encodings import integer_array
from pulljobs.models import HttpClient
from pulljobs.storage.forgetting import forget
from pulljobs.storage.statements import run

MOST: Final = 100
"""Maximum number of rows of one consumer: those of the latest contacts stay."""
KEPT: Final = timedelta(days=1)


class ClientNote(NamedTuple):
    """Client that sent a request for a consumer. Texts are printable ASCII of bounded length."""

    consumer_id: int
    name: str
    host: str
    address: str
    agent: str


def record(using: str, notes: Sequence[ClientNote]) -> None:
    """Write the present time as the last contact of these clients.

    Of each consumer, rows beyond the newest 100 and those older than a day are deleted.
    """
    ordered = sorted(notes)
    consumer_ids = integer_array(note.consumer_id for note in ordered)
    params = {
        "consumer_ids": consumer_ids,
        "names": [note.name for note in ordered],
        "hosts": [note.host for note in ordered],
        "addresses": [note.address for note in ordered],
        "agents": [note.agent for note in ordered],
    }
    run(using, "note_clients", params)
    run(using, "cap_clients", {"consumer_ids": consumer_ids, "most": MOST, "age": KEPT})


def forget_old(using: str) -> int:
    """Delete a batch of clients without contact for a day and return their number."""
    return forget(HttpClient.objects.using(using).filter(seen_at__lt=Now() - KEPT))
