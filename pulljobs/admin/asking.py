"""What the filters of a list ask for: as a selection of rows, and in words."""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from pulljobs import ids
from pulljobs.admin import search
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Channel, Consumer, Job
from pulljobs.states import LIVE, SETTLED, Reason
from pulljobs.storage import nodes, selecting, settlements
from pulljobs.storage.published import NUL
from pulljobs.storage.selecting import Selection

CHOSEN: Final = "chosen"
NOTHING: Final = Selection(among=())
Asked = Mapping[str, str]


class Age(NamedTuple):
    title: Any
    span: timedelta
    is_older: bool


AGES: Final = {
    "1h": Age(gettext_lazy("the last hour"), timedelta(hours=1), False),
    "1d": Age(gettext_lazy("the last 24 hours"), timedelta(days=1), False),
    "7d": Age(gettext_lazy("the last 7 days"), timedelta(days=7), False),
    "over-1h": Age(gettext_lazy("more than an hour ago"), timedelta(hours=1), True),
    "over-1d": Age(gettext_lazy("more than a day ago"), timedelta(days=1), True),
    "over-7d": Age(gettext_lazy("more than a week ago"), timedelta(days=7), True),
}


def jobs(asked: Asked) -> Selection:
    """Live jobs; what is none of the choices means none."""
    if CHOSEN in asked:
        return Selection(among=tuple(sorted(set(search.numbers(asked[CHOSEN].split(","))))))
    meant = _meant(asked, tuple(sorted(map(str, LIVE))))
    return _found(asked, meant, Job, "id", selecting.COLUMNS) if asked.get("q") else meant


def settled(asked: Asked) -> Selection:
    """Rows of the archive."""
    meant = _meant(asked, tuple(sorted(map(str, SETTLED))))
    if not asked.get("q"):
        return meant
    return _found(asked, meant._replace(key=None), ArchivedJob, "job_id", settlements.COLUMNS)


def words(asked: Asked) -> str:
    """What is meant, for people."""
    return ", ".join(_words(asked)).replace(NUL, "") or _("all live jobs")


def _words(asked: Asked) -> Iterator[str]:
    for name in ("state", "reason", "key"):
        if asked.get(name):
            yield f"{name} {asked[name]}"
    using = settings().DATABASE
    if asked.get("channel"):
        found = Channel.objects.using(using).filter(pk=number(asked["channel"])).first()
        yield f"channel {found}"
    if asked.get("consumer"):
        rows = Consumer.objects.using(using).select_related("channel")
        one = rows.filter(pk=number(asked["consumer"])).first()
        yield f"consumer {one.channel}/{one}" if one else "consumer None"
    if asked.get("age") in AGES:
        yield _("made: %s") % AGES[asked["age"]].title
    if asked.get("q"):
        yield _("found by “%s”") % asked["q"]


def _meant(asked: Asked, states: tuple[str, ...]) -> Selection:
    state, reason, age, key = (asked.get(one) or None for one in ("state", "reason", "age", "key"))
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
    """Of ids."""
    everything = Selection()
    if age is None:
        return everything.first, everything.last
    now: datetime = nodes.clock(settings().DATABASE)
    edge = ids.first_of(now - AGES[age].span)
    return (everything.first, edge) if AGES[age].is_older else (edge, everything.last)


def _consumers(asked: Asked) -> tuple[int, ...] | None:
    if not asked.get("consumer") and not asked.get("channel"):
        return None
    rows = Consumer.objects.using(settings().DATABASE)
    if asked.get("consumer"):
        rows = rows.filter(pk=number(asked["consumer"]))
    if asked.get("channel"):
        rows = rows.filter(channel_id=number(asked["channel"]))
    return tuple(rows.values_list("pk", flat=True))


def number(text: str) -> int:
    """Of an id in the address; of what is no number, one that no row has."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1


def _found(
    asked: Asked, meant: Selection, model: type[Any], field: str, columns: tuple[str, ...]
) -> Selection:
    """Few rows, by what somebody had at hand."""
    rows = model.objects.using(settings().DATABASE).filter(search.matching(asked["q"], field))
    fitting = (row["id"] for row in rows.values(*columns)[: search.MOST] if meant.fits(row))
    return Selection(among=tuple(sorted(fitting)))
