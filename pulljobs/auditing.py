"""What operators do, written down: who, when, what, to which and to how many.

What is done to many jobs is done in batches. A batch changes its jobs, says what became of each and
how far it came, in one transaction. Whoever was at it may die at any time: any process takes it up
where the last commit left it, and no job meets it twice, for it goes by the jobs' ids, upwards.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.models import AuditEntry, Channel, Consumer, Job
from pulljobs.models.registry import Party
from pulljobs.operating import Outcome
from pulljobs.states import TRANSITIONS, Event, State
from pulljobs.storage import audit, nodes, selecting
from pulljobs.storage.selecting import Selection
from pulljobs.storage.statements import brief, retrying
from pulljobs.storage.windows import upwards

BATCH: Final = 1_000
COUNTED: Final = 10_000
LOOKED_THROUGH: Final = 20_000
"""Rows, to count what is meant."""

Act = Callable[[list[int], AuditEntry], Outcome]
ACTS: Final[Mapping[Event, Act]] = {
    Event.REDRIVE: lambda jobs, entry: operating.redrive(jobs),
    Event.RELEASE: lambda jobs, entry: operating.requeue(jobs),
    Event.KILL: lambda jobs, entry: operating.kill(jobs, by=entry.by),
    Event.RESCHEDULE: lambda jobs, entry: operating.reschedule(jobs, at=entry.at),
    Event.DELETE: lambda jobs, entry: operating.delete(jobs),
}


class Preview(NamedTuple):
    """How many jobs it would be upon."""

    jobs: int
    is_more: bool
    """There may be more: no more were counted, or looked through."""
    first: list[int]


def preview(event: Event, selection: Selection) -> Preview:
    """What is meant right now, the oldest first."""
    using = settings().DATABASE
    span = upwards(0, COUNTED, LOOKED_THROUGH)
    found = selecting.window(using, _for(event, selection), span)
    return Preview(len(found.ids), found.beyond is not None, found.ids[:5])


def begin(
    event: Event,
    selection: Selection,
    *,
    by: str,
    upon: str,
    at: datetime | None = None,
    expected: Preview | None = None,
) -> AuditEntry:
    """Write down what is to be done to all that is meant, of the jobs that there are by now.

    `proceed` does it, and so does every worker. `upon` says in words what is meant. ValueError for
    a time that `operating.check_due` refuses: each of them would fail at it.
    """
    operating.check_due(at)
    using = settings().DATABASE
    meant = _for(event, selection)
    made = ids.first_of(nodes.clock(using) + timedelta(milliseconds=1)) - 1
    return AuditEntry.objects.using(using).create(
        by=by,
        act=event.value,
        upon=upon,
        selection=meant._asdict(),
        at=at,
        expected=expected.jobs if expected else None,
        is_more=expected.is_more if expected else False,
        last=made if meant.among is None else max(meant.among, default=0),
    )


def act(event: Event, job_ids: Iterable[int], *, by: str, at: datetime | None = None) -> AuditEntry:
    """Do it to these jobs, now: all of it, or nothing if it fails."""
    among = tuple(sorted(set(job_ids)))
    upon = ", ".join(map(ids.encode, among[:3])) + (" ..." if among[3:] else "")

    def work() -> AuditEntry:
        with transaction.atomic(using=settings().DATABASE):
            meant = Selection(among=among)
            entry = begin(event, meant, by=by, upon=f"{len(among)} chosen: {upon}", at=at)
            while _proceed(entry.pk):
                pass
        return entry

    entry = retrying(settings().DATABASE, work)
    entry.refresh_from_db(using=settings().DATABASE)
    return entry


def proceed(seconds: float, entry_id: int | None = None) -> bool:
    """Go on with what has not come to its end, or with the one, for so long; whether there is more.

    False as well where another process is at it.
    """
    using = settings().DATABASE
    until = time.monotonic() + seconds
    while retrying(using, lambda: _proceed(entry_id)):
        if time.monotonic() >= until:
            return True
    return False


def note(act: str, *, by: str, upon: str, at: datetime | None = None, done: int = 1) -> None:
    """Write down what was done at once, by other ways than `begin` and `act`."""
    AuditEntry.objects.using(settings().DATABASE).create(
        by=by, act=act, upon=upon, at=at, done=done, finished_at=Now()
    )


def noting(steps: Iterable[int], act: str, *, by: str, upon: str) -> Iterator[int]:
    """The same of what is done in steps: after each it is written how far that came."""
    rows = AuditEntry.objects.using(settings().DATABASE)
    entry = rows.create(by=by, act=act, upon=upon, finished_at=Now())
    for done in steps:
        rows.filter(pk=entry.pk).update(done=F("done") + done, finished_at=Now())
        yield done


def note_pause(party: Channel | Consumer, until: datetime | None, *, by: str) -> None:
    act = AuditEntry.Act.PAUSE if until else AuditEntry.Act.RESUME
    note(act, by=by, upon=name_of(party), at=until)


def name_of(party: Party) -> str:
    """In the trail."""
    channel = f"{party.channel.name}/" if isinstance(party, Consumer) else ""
    return f"{party._meta.verbose_name} {channel}{party.name}"


def stop(entry: AuditEntry, *, by: str) -> bool:
    """Leave alone what it has not come to; whether there was something left."""
    return audit.stop(settings().DATABASE, entry.pk, by)


def _for(event: Event, selection: Selection) -> Selection:
    """Only states that the event leaves; chosen jobs are all tried, and told of."""
    states = [state for state in selection.states if state in TRANSITIONS[event].sources]
    return selection._replace(states=tuple(map(str, states)))


def _proceed(entry_id: int | None) -> bool:
    """One batch; whether there may be another."""
    using = settings().DATABASE
    with brief(using):
        entry = audit.locked(using, entry_id)
        if entry is None:
            return False
        selection = Selection.parse(entry.selection)
        meant = selection._replace(last=min(selection.last, entry.last))
        found = selecting.window(using, meant, upwards(entry.cursor, BATCH))
        event = Event(entry.act)
        outcome = ACTS[event](found.ids, entry) if found.ids else Outcome([], [])
        audit.advance(using, entry, outcome.done, _refusals(event, outcome.refused), found.beyond)
    return found.beyond is not None or entry_id is None


def _refusals(event: Event, refused: list[int]) -> dict[int, str]:
    """Why nothing was done to them."""
    found = Job.objects.using(settings().DATABASE).filter(id__in=refused)
    now = dict(found.values_list("id", "state"))
    return {id: _why_not(event, now.get(id)) for id in refused}


def _why_not(event: Event, state: str | None) -> str:
    sources = TRANSITIONS[event].sources
    if state is None:
        return "it is no live job any more (delivered or deleted)"
    if state in sources:
        return "it waits behind its key" if event is Event.RESCHEDULE else "somebody was at it"
    allowed = " or ".join(source for source in State if source in sources)
    return f"it is {state}, and {event} is for {allowed}"
