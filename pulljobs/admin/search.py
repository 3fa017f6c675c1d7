"""Search for jobs by an id, or by a text in a bounded range."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db.models import Q
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs import ids
from pulljobs.admin import payloads
from pulljobs.conf import settings
from pulljobs.models import Channel, Publication
from pulljobs.storage import searching
from pulljobs.storage.published import NUL
from pulljobs.storage.text_matching import TextQuery
from pulljobs.storage.windows import IdRun, IdSpan, IdWindow, merged

MOST: Final = 1_000
"""Largest number of rows that are found by an id."""
LONGEST: Final = 200
"""Characters of a text that are looked for."""
HELP: Final = _(
    "An id of a job or message, the client's message id, or a text: a task, a key, an error, a "
    "part of a payload."
)


class SearchedRange(NamedTuple):
    """Answer to a search, and the range in which a text was looked for."""

    window: IdWindow
    text: str
    """Text that was looked for, or that could be: see `by_id`."""
    by_id: bool
    """True if there is such an id. Then no text was looked for."""
    rows: int = 0
    since: datetime | None = None
    """Time of the oldest row that was compared, or None if all rows were."""
    payloads: bool = False
    """True if payloads were compared."""


def search(
    request: HttpRequest,
    span: IdSpan,
    with_id: Callable[[str], Iterable[int]],
    read_window: Callable[[IdSpan], IdWindow],
    find_hits: Callable[[list[int], TextQuery], set[int]],
) -> SearchedRange:
    """Return the rows with that id, or else the next rows with that text.

    A term in quotes is a text only.
    """
    term = request.GET["q"].replace(NUL, "").strip()
    text = _unquoted(term)
    known = [] if text != term else list(with_id(term))
    if known:
        by_id = IdRun([id for id in known if span.leads_to(id)], None)
        return SearchedRange(merged([by_id], span), text, by_id=True)
    query = TextQuery(text[:LONGEST], payloads.may_read(request))
    if not query.text:
        return SearchedRange(IdWindow([], None), "", by_id=False)
    hits = searching.search(read_window, lambda read: find_hits(read, query), span)
    since = None if hits.back_to is None else ids.time_of(hits.back_to)
    return SearchedRange(hits.window, query.text, False, hits.rows, since, query.payloads)


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


def is_for_text(asked: Any) -> bool:
    """Return True if the term is in quotes."""
    term = str(asked.get("q", "")).strip()
    return _unquoted(term) != term


def _unquoted(term: str) -> str:
    is_quoted = len(term) > 1 and term[0] == term[-1] == '"'
    return term[1:-1].strip() if is_quoted else term


def _messages(client_message_id: str) -> list[int]:
    """Return the newest message with that id on each channel, by the primary key."""
    using = settings().DATABASE
    publications = Publication.objects.using(using).filter(
        channel_id__in=list(Channel.objects.using(using).values_list("pk", flat=True)),
        client_message_id=client_message_id,
    )
    return list(publications.values_list("message_id", flat=True))
