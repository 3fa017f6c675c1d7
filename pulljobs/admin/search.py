"""Search for jobs by an id in either form, or by the client's message id."""

from collections.abc import Iterable
from contextlib import suppress

from django.db.models import Q

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.models import Channel, Publication
from pulljobs.storage.published import NUL

MOST = 1_000
"""Largest number of rows of a search."""
HELP = "Job id or message id (number or xid), or the client's message id."


def matching(term: str, job_field: str) -> Q:
    """Return the condition for jobs with that id, and for jobs of the message with that id."""
    term = term.replace(NUL, "").strip()
    known = numbers([term])
    return Q((f"{job_field}__in", known)) | Q(message_id__in=[*known, *_messages(term)])


def numbers(terms: Iterable[str]) -> list[int]:
    """Return the numbers of the terms that are ids, in either form."""
    known = []
    for term in terms:
        with suppress(ValueError):
            known.append(ids.number_of(term.lower()))
    return known


def _messages(client_message_id: str) -> list[int]:
    """Return the newest message with that id on each channel, by the primary key."""
    using = settings().DATABASE
    publications = Publication.objects.using(using).filter(
        channel_id__in=list(Channel.objects.using(using).values_list("pk", flat=True)),
        client_message_id=client_message_id,
    )
    return list(publications.values_list("message_id", flat=True))
