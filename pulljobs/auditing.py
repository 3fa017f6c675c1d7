"""Audit trail of operators' actions: by which user, when, what, and on which jobs.

An action on many jobs runs in batches. One transaction changes the jobs of a batch, records the
result of each, and advances the cursor of the action: the job id up to which it is done. The
process may die at any time: any other process continues from the last commit. No job is acted on
twice, because the cursor only moves up.
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
from pulljobs.operating import Changed
from pulljobs.states import TRANSITIONS, Event, State
from pulljobs.storage import audit, nodes, selecting
from pulljobs.storage.selecting import Selection
from pulljobs.storage.transactions import brief, retrying
from pulljobs.storage.windows import upwards

BATCH: Final = 1_000
COUNTED: Final = 10_000
"""Largest number of jobs that a preview counts."""
LOOKED_THROUGH: Final = 20_000
"""Largest number of rows that a preview reads."""

Act = Callable[[list[int], AuditEntry], Changed]
ACTS: Final[Mapping[Event, Act]] = {
    Event.REDRIVE: lambda jobs, entry: operating.redrive(jobs),
    Event.RELEASE: lambda jobs, entry: operating.requeue(jobs),
    Event.KILL: lambda jobs, entry: operating.kill(jobs, by=entry.by),
    Event.RESCHEDULE: lambda jobs, entry: operating.reschedule(jobs, at=entry.at),
    Event.DELETE: lambda jobs, entry: operating.delete(jobs),
}


class Preview(NamedTuple):
    """Number of jobs that an action would be tried on, shown before the operator confirms it."""

    jobs: int
    is_more: bool
    """True if there may be more: counting stopped at its limit."""
    first: list[int]
    """Ids of the oldest of them, at most five."""


def preview(event: Event, selection: Selection) -> Preview:
    """Count the jobs that the event would be tried on now, at most `COUNTED`."""
    using = settings().DATABASE
    span = upwards(0, COUNTED, LOOKED_THROUGH)
    selected = selecting.window(using, _for(event, selection), span)
    return Preview(len(selected.ids), selected.beyond is not None, selected.ids[:5])


def begin(
    event: Event,
    selection: Selection,
    *,
    by: str,
    subject: str,
    at: datetime | None = None,
    expected: Preview | None = None,
) -> AuditEntry:
    """Record an action on all selected jobs that exist by now.

    Nothing changes yet: `proceed` carries it out, and so does every worker. `subject` describes the
    selection in words, and `expected` is what the operator saw: both are stored. `at` is the time
    of a reschedule. Raise ValueError if it is naive, before 1000 or over 100 years ahead.
    """
    operating.check_due(at)
    using = settings().DATABASE
    meant = _for(event, selection)
    made = ids.first_of(nodes.clock(using) + timedelta(milliseconds=1)) - 1
    return AuditEntry.objects.using(using).create(
        by=by,
        act=event.value,
        subject=subject,
        selection=meant._asdict(),
        at=at,
        expected=expected.jobs if expected else None,
        is_more=expected.is_more if expected else False,
        last=made if meant.among is None else max(meant.among, default=0),
    )


def act(event: Event, job_ids: Iterable[int], *, by: str, at: datetime | None = None) -> AuditEntry:
    """Apply the event to these jobs now, in one transaction. Return the finished audit entry.

    `at` is the due time for a reschedule.
    """
    among = tuple(sorted(set(job_ids)))
    subject = ", ".join(map(ids.encode, among[:3])) + (" ..." if among[3:] else "")

    def work() -> AuditEntry:
        with transaction.atomic(using=settings().DATABASE):
            meant = Selection(among=among)
            entry = begin(event, meant, by=by, subject=f"{len(among)} chosen: {subject}", at=at)
            while _proceed(entry.pk):
                pass
            entry.refresh_from_db(using=settings().DATABASE)
        return entry

    return retrying(settings().DATABASE, work)


def proceed(seconds: float, entry_id: int | None = None) -> bool:
    """Carry out unfinished actions, all or only that of `entry_id`, for about `seconds`.

    Return True if work may be left when the time is over. Actions that other processes carry out at
    the moment do not count.
    """
    using = settings().DATABASE
    until = time.monotonic() + seconds
    while retrying(using, lambda: _proceed(entry_id)):
        if time.monotonic() >= until:
            return True
    return False


def note(act: str, *, by: str, subject: str, at: datetime | None = None, done: int = 1) -> None:
    """Record an action, such as a pause, that the caller has done already, on `done` objects."""
    AuditEntry.objects.using(settings().DATABASE).create(
        by=by, act=act, subject=subject, at=at, done=done, finished_at=Now()
    )


def noting(steps: Iterable[int], act: str, *, by: str, subject: str) -> Iterator[int]:
    """Yield the items of `steps`, which carry out an action, and count them in a new audit entry.

    An item is the number of jobs that one batch changed. It is counted before it is yielded.
    """
    rows = AuditEntry.objects.using(settings().DATABASE)
    entry = rows.create(by=by, act=act, subject=subject, finished_at=Now())
    for done in steps:
        rows.filter(pk=entry.pk).update(done=F("done") + done, finished_at=Now())
        yield done


def note_pause(token_holder: Channel | Consumer, until: datetime | None, *, by: str) -> None:
    """Record that a channel or consumer was paused until this time, or resumed (None)."""
    act = AuditEntry.Act.PAUSE if until else AuditEntry.Act.RESUME
    note(act, by=by, subject=token_holder.describe(), at=until)


def note_weight(consumer: Consumer, key: str, weight: int, *, by: str) -> None:
    """Record the new weight of a key of a consumer."""
    subject = f"{consumer.describe()}: weight {weight} of key {key!r}"
    note(AuditEntry.Act.UPDATE, by=by, subject=subject)


def stop(entry: AuditEntry, *, by: str) -> bool:
    """Stop an action after its current batch. Return False if it had ended already."""
    return audit.stop(settings().DATABASE, entry.pk, by)


def _for(event: Event, selection: Selection) -> Selection:
    """Restrict the selection to states in which the event is allowed.

    Jobs that are chosen by their ids stay selected in any state.
    """
    states = [state for state in selection.states if state in TRANSITIONS[event].sources]
    return selection._replace(states=tuple(map(str, states)))


def _proceed(entry_id: int | None) -> bool:
    """Carry out a batch of this unfinished action (None: any). Return True if more may follow."""
    using = settings().DATABASE
    with brief(using):
        entry = audit.locked(using, entry_id)
        if entry is None:
            return False
        selection = Selection.parse(entry.selection)
        meant = selection._replace(last=min(selection.last, entry.last))
        batch = selecting.window(using, meant, upwards(entry.cursor, BATCH))
        event = Event(entry.act)
        changed = ACTS[event](batch.ids, entry) if batch.ids else Changed([], [])
        audit.advance(using, entry, changed.done, _refusals(event, changed.refused), batch.beyond)
    return batch.beyond is not None or entry_id is None


def _refusals(event: Event, refused: list[int]) -> dict[int, str]:
    """Return why the event did not change these jobs, as a text by job id."""
    rows = Job.objects.using(settings().DATABASE).filter(id__in=refused)
    now = dict(rows.values_list("id", "state"))
    return {id: _why_not(event, now.get(id)) for id in refused}


def _why_not(event: Event, state: str | None) -> str:
    sources = TRANSITIONS[event].sources
    if state is None:
        return "it is no live job any more (delivered or deleted)"
    if state in sources:
        blocked = "it is blocked behind its key"
        return blocked if event is Event.RESCHEDULE else "another session was changing it"
    allowed = " or ".join(source for source in State if source in sources)
    return f"it is {state}, and {event} is for {allowed}"
