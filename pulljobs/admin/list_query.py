"""Translation of the filters in the URL of a list page into a `Selection`, and into words."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import ids
from pulljobs.admin import search
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Channel, Consumer, Job
from pulljobs.states import SETTLED, Reason, State
from pulljobs.storage import all_jobs, nodes, selecting, settlements
from pulljobs.storage.published import NUL
from pulljobs.storage.selecting import Selection

CHOSEN: Final = "chosen"
NOTHING: Final = Selection(among=())
ListQuery = Mapping[str, str]
"""Query parameters of a list page of the admin: choices of its filters, and search term `q`."""


class Age(NamedTuple):
    """Option of a filter by time, such as "the last hour" or "more than a day ago"."""

    title: Any
    span: timedelta
    is_older: bool
    """True for the rows that are older than `span`, False for those of the last `span`."""


AGES: Final = {
    "1h": Age(gettext_lazy("the last hour"), timedelta(hours=1), False),
    "1d": Age(gettext_lazy("the last 24 hours"), timedelta(days=1), False),
    "7d": Age(gettext_lazy("the last 7 days"), timedelta(days=7), False),
    "over-1h": Age(gettext_lazy("more than an hour ago"), timedelta(hours=1), True),
    "over-1d": Age(gettext_lazy("more than a day ago"), timedelta(days=1), True),
    "over-7d": Age(gettext_lazy("more than a week ago"), timedelta(days=7), True),
}


def select_jobs(asked: ListQuery) -> Selection:
    """Return the conditions that select live jobs for an action on all jobs of a list page.

    A search term selects by the id of the job, the message id or the client message id. An unknown
    choice of a filter selects no job. Ids in `chosen` replace all other conditions.
    """
    if CHOSEN in asked:
        return Selection(among=tuple(sorted(set(search.numbers(asked[CHOSEN].split(","))))))
    meant = _meant(asked, selecting.ALL_STATES)
    if not asked.get("q"):
        return meant
    return Selection(among=_with_id(asked["q"], meant, Job, "id", selecting.COLUMNS))


def select_all_jobs(asked: ListQuery) -> Selection:
    """Return the conditions that the filters of a list page set for live and archived jobs.

    The search term is not among them: `find_jobs` applies it.
    """
    return _meant(asked, all_jobs.STATES)


def select_settled(asked: ListQuery) -> Selection:
    """Return the conditions that the filters of a list page set for rows of the archive.

    The search term is not among them: `find_settlements` applies it.
    """
    return _meant(asked, tuple(sorted(map(str, SETTLED))))


def find_jobs(term: str, meant: Selection) -> tuple[int, ...]:
    """Return the ids of the jobs, live or archived, that a search term names and `meant` selects.

    The term is the id of a job or of its message, or the client message id. The key in `meant` does
    not count for archived jobs.
    """
    live = _with_id(term, meant, Job, "id", selecting.COLUMNS)
    if State.DELIVERED not in meant.states:
        return live
    columns = (*settlements.COLUMNS, "job_id")
    archived = _with_id(term, meant._replace(key=None), ArchivedJob, "job_id", columns, "job_id")
    return tuple(sorted({*live, *archived}))


def find_settlements(term: str, meant: Selection) -> tuple[int, ...]:
    """Return the ids of archive rows that `meant` selects and whose job the search term names.

    The key in `meant` does not count.
    """
    meant = meant._replace(key=None)
    return _with_id(term, meant, ArchivedJob, "job_id", settlements.COLUMNS)


def describe(asked: ListQuery) -> str:
    """Return the filters and the search term in words, or "all live jobs" if there are none."""
    return ", ".join(_descriptions(asked)).replace(NUL, "") or _("all live jobs")


def _descriptions(asked: ListQuery) -> Iterator[str]:
    if CHOSEN in asked:
        yield _("the chosen jobs")
    for name in ("state", "reason", "key"):
        if asked.get(name):
            yield f"{name} {asked[name]}"
    using = settings().DATABASE
    if asked.get("channel"):
        channel = Channel.objects.using(using).filter(pk=parse_id(asked["channel"])).first()
        yield f"channel {channel}"
    if asked.get("consumer"):
        rows = Consumer.objects.using(using).select_related("channel")
        consumer = rows.filter(pk=parse_id(asked["consumer"])).first()
        yield f"consumer {consumer.channel}/{consumer}" if consumer else "consumer None"
    if asked.get("age") in AGES:
        yield _("created: %s") % AGES[asked["age"]].title
    if asked.get("q"):
        yield _("found by “%s”") % asked["q"]


def _meant(asked: ListQuery, states: tuple[str, ...]) -> Selection:
    state, reason, age, key = (
        asked.get(name) or None for name in ("state", "reason", "age", "key")
    )
    consumer_ids = _consumers(asked)
    known = state in (None, *states) and reason in (None, *Reason) and (age is None or age in AGES)
    if not known or consumer_ids == () or NUL in (key or ""):
        return NOTHING
    first, last = _bounds(age)
    return Selection(
        states=(state,) if state else states,
        consumer_ids=consumer_ids,
        reason=reason,
        key=key,
        first=first,
        last=last,
    )


def _bounds(age: str | None) -> tuple[int, int]:
    """Return the lowest and highest id of jobs that were created in the time of an age filter.

    `age` is the filter's option, None for jobs of any age. Ids rise with the time of creation.
    """
    everything = Selection()
    if age is None:
        return everything.first, everything.last
    now: datetime = nodes.clock(settings().DATABASE)
    edge = ids.first_of(now - AGES[age].span)
    return (everything.first, edge) if AGES[age].is_older else (edge, everything.last)


def _consumers(asked: ListQuery) -> tuple[int, ...] | None:
    if not asked.get("consumer") and not asked.get("channel"):
        return None
    rows = Consumer.objects.using(settings().DATABASE)
    if asked.get("consumer"):
        rows = rows.filter(pk=parse_id(asked["consumer"]))
    if asked.get("channel"):
        rows = rows.filter(channel_id=parse_id(asked["channel"]))
    return tuple(rows.values_list("pk", flat=True))


def parse_id(text: str) -> int:
    """Return the decimal id in a text, or -1, which no row has, for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1


def _with_id(
    term: str,
    meant: Selection,
    model: type[Any],
    field: str,
    columns: tuple[str, ...],
    id_column: str = "id",
) -> tuple[int, ...]:
    """Return `id_column` of the rows that `meant` selects and whose job the search term names.

    At most `search.MOST` rows are read. `field` is the column with the id of the job, and
    `columns` are those that the conditions of `meant` need.
    """
    if meant.among is not None:
        return ()
    rows = model.objects.using(settings().DATABASE).filter(search.matching(term, field))
    read = rows.values(*columns)[: search.MOST]
    return tuple(
        sorted({row[id_column] for row in read if meant.fits({**row, "id": row[id_column]})})
    )
