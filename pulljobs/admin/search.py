"""Finding jobs by what people have at hand: an id in either form, or the client's message id."""

from collections.abc import Iterable
from contextlib import suppress

from django.db.models import Q

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import Channel, Publication
from pulljobs.storage.published import NUL

MOST = 1_000
"""Rows that one search brings."""
HELP = "Job id or message id (number or xid), or the client's message id."


def matching(term: str, job_field: str) -> Q:
    """Jobs whose id it is, and jobs of the message whose id it is."""
    term = term.replace(NUL, "").strip()
    found = numbers([term])
    return Q((f"{job_field}__in", found)) | Q(message_id__in=[*found, *_messages(term)])


def numbers(terms: Iterable[str]) -> list[int]:
    """Of those that are ids, in either form."""
    found = []
    for term in terms:
        with suppress(ValueError):
            found.append(ids.number_of(term.lower()))
    return found


def _messages(client_message_id: str) -> list[int]:
    """The newest of that id on each channel; naming the channels lets the key serve it."""
    using = settings().DATABASE
    publications = Publication.objects.using(using).filter(
        channel_id__in=list(Channel.objects.using(using).values_list("pk", flat=True)),
        client_message_id=client_message_id,
    )
    return list(publications.values_list("message_id", flat=True))
