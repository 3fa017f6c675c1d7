"""Lists of jobs for pages, newest first, both live (in the job table) and archived."""

from collections.abc import Sequence
from typing import Final

from django.db.models import QuerySet

from pulljobs.models import ArchivedJob, Job
from pulljobs.states import LIVE, SETTLED, State
from pulljobs.storage import selecting, settlements, text_matching
from pulljobs.storage.selecting import Selection
from pulljobs.storage.text_matching import TextQuery
from pulljobs.storage.windows import SCANNED, IdRun, IdSpan, IdWindow, merged

STATES: Final = tuple(sorted(LIVE | {State.DELIVERED}))
"""States in a selection of all jobs, live and archived."""


def window(using: str, selection: Selection, span: IdSpan) -> IdWindow:
    """Return the next ids of selected jobs, from the archive as well if DELIVERED is selected.

    Live jobs are read first, so that a job that is delivered in between is in one of the two.
    """
    if selection.among is not None:
        return selecting.window(using, selection, span)
    runs = []
    span = span.narrow(min(span.scanned, SCANNED // 2))
    if live := tuple(state for state in selection.states if state in LIVE):
        near = selecting.window(using, selection._replace(states=live), span)
        runs.append(IdRun(near.ids, near.beyond))
    if State.DELIVERED in selection.states and selection.reason is None:
        # Jobs that died and were deleted have no live row, and are listed among all states only.
        states = tuple(sorted(SETTLED)) if live else (State.DELIVERED.value,)
        archived = selection._replace(states=states)
        far = settlements.window(using, archived, span, by="job_id")
        runs.append(IdRun(far.ids, far.beyond))
    return merged(runs, span)


def read_rows(
    live: QuerySet[Job], archived: QuerySet[ArchivedJob] | None, job_ids: Sequence[int]
) -> list[Job | ArchivedJob]:
    """Return the live row of each job, or else its last row in the archive, in the given order.

    Jobs with neither are left out. With None for `archived`, only live rows are read.
    """
    rows: dict[int, Job | ArchivedJob] = {job.id: job for job in live.filter(pk__in=job_ids)}
    if archived is not None:
        gone = [id for id in job_ids if id not in rows]
        rows |= settlements.newest_of(archived, gone)
    return [rows[id] for id in job_ids if id in rows]


def find_hits(using: str, job_ids: list[int], query: TextQuery, *, archived: bool) -> set[int]:
    """Return the ids of those jobs whose error or message contains the text.

    With `archived`, the rows of the archive are compared, too.
    """
    hits = text_matching.find_hits(Job.objects.using(using), "id", job_ids, query)
    if archived and (others := [id for id in job_ids if id not in hits]):
        rows = settlements.since(ArchivedJob.objects.using(using), others)
        hits |= text_matching.find_hits(rows, "job_id", others, query)
    return hits
