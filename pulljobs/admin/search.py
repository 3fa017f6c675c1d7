"""Search of the job lists: by an id in all jobs, or by a text in a bounded number of rows."""

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
"""Largest number of rows that a search by an id finds."""
LONGEST: Final = 200
"""Largest number of characters of a text that is searched for."""
HELP: Final = _(
    "An id of a job or message, the client's message id, or a text: a task, a key, an error, a "
    "part of a payload."
)


class SearchedRange(NamedTuple):
    """Ids that a search found, with the number and the oldest time of the rows that it compared."""

    window: IdWindow
    text: str
    """Term without its quotes, as a text to search for."""
    by_id: bool
    """True if the term is an id of a row. Then rows were not compared with the text."""
    rows: int = 0
    """Number of rows that were compared with the text."""
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
    """Return the ids of the next rows in `span` that match the search term of the request.

    `with_id` returns the ids of rows for a term that is an id. If there are none, or the term is in
    quotes, rows are read by `read_window`, and `find_hits` returns the ids of those that contain
    the text.
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
    """Return the condition for jobs whose id, message id or client message id is the term.

    `job_field` is the column with the id of the job. A client message id is looked up now, and
    stands for the newest message that has it, on each channel.
    """
    term = term.replace(NUL, "").strip()
    known = numbers([term])
    return Q((f"{job_field}__in", known)) | Q(message_id__in=[*known, *_find_messages(term)])


def numbers(terms: Iterable[str]) -> list[int]:
    """Return as numbers the terms that are ids: in decimal, or in the form of 20 characters."""
    known = []
    for term in terms:
        with suppress(ValueError):
            known.append(ids.number_of(term.lower()))
    return known


def is_for_text(asked: Any) -> bool:
    """Return True if the search term in these query parameters is in quotes: a text, not an id."""
    term = str(asked.get("q", "")).strip()
    return _unquoted(term) != term


def _unquoted(term: str) -> str:
    is_quoted = len(term) > 1 and term[0] == term[-1] == '"'
    return term[1:-1].strip() if is_quoted else term


def _find_messages(client_message_id: str) -> list[int]:
    """Return the ids of the newest message with this client message id on each channel.

    The query names all channels, because the primary key of publications begins with the channel.
    """
    using = settings().DATABASE
    publications = Publication.objects.using(using).filter(
        channel_id__in=list(Channel.objects.using(using).values_list("pk", flat=True)),
        client_message_id=client_message_id,
    )
    return list(publications.values_list("message_id", flat=True))
