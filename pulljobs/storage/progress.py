"""Progress that handlers report of running jobs.

`report` keeps it in memory. A loop of the worker writes it, at most once a second. A job without
reports costs nothing.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final, NamedTuple

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from pulljobs.engine.encodings import array, integer_array
from pulljobs.engine.outcomes import Held
from pulljobs.engine.validation import check_amount
from pulljobs.errors import LONGEST_NOTE
from pulljobs.models import Job, JobProgress
from pulljobs.storage.forgetting import forget
from pulljobs.storage.statements import run

KEPT: Final = timedelta(days=1)
"""Time for which the last progress of a job that has ended can be read."""


class ReportedProgress(NamedTuple):
    """Progress that a handler reports: `done` of `total`, in any unit, and a note for people."""

    done: float
    total: float | None
    note: str


_reported: dict[Held, ReportedProgress] = {}


def report(held: Held, done: float, total: float | None, note: str) -> None:
    """Keep a job's progress for the next `write`, in place of an earlier report of the job.

    Raise ValueError for amounts that `make_report` refuses.
    """
    _reported[held] = make_report(done, total, note)


def make_report(done: float, total: float | None, note: str) -> ReportedProgress:
    """Check a report and return it, with the note cut to its greatest length.

    Raise ValueError unless `done` and `total`, if given, are finite numbers from 0 on.
    """
    amount = check_amount("done", done)
    whole = None if total is None else check_amount("total", total)
    text = str(note).replace("\x00", "").encode("utf-8", "replace").decode()[:LONGEST_NOTE]
    return ReportedProgress(amount, whole, text)


def has_reports() -> bool:
    """Return True if this process has reports that are not written yet."""
    return bool(_reported)


def write(using: str) -> None:
    """Write the reports of this process. On an error they are kept for the next call.

    Nothing is written for jobs that are no longer held under their lease tokens.
    """
    reports = {held: _reported.pop(held) for held in sorted(_reported)}
    if not reports:
        return
    try:
        write_reports(using, reports)
    except Exception:
        for held, report in reports.items():
            _reported.setdefault(held, report)
        raise


def write_reports(using: str, reports: Mapping[Held, ReportedProgress]) -> None:
    """Write reports, whose jobs must be in ascending order, so that no deadlock can occur.

    Nothing is written for jobs that are no longer held under their lease tokens.
    """
    run(using, "report_progress", _parameters(reports))


def find(using: str, job_id: int) -> JobProgress | None:
    """Return the row with the last progress of a job, or None if none is stored."""
    return JobProgress.objects.using(using).filter(pk=job_id).first()


def forget_old(using: str) -> int:
    """Delete a batch of progress rows of jobs that are not live, a day after the last report.

    Return their number.
    """
    live = Job.objects.filter(pk=OuterRef("pk"))
    rows = JobProgress.objects.using(using).filter(reported_at__lt=Now() - KEPT)
    return forget(rows.filter(~Exists(live)))


def _parameters(reports: Mapping[Held, ReportedProgress]) -> dict[str, object]:
    return {
        "job_ids": integer_array([held.job_id for held in reports]),
        "lease_tokens": array(held.lease_token for held in reports),
        "done": [report.done for report in reports.values()],
        "totals": [report.total for report in reports.values()],
        "notes": [report.note for report in reports.values()],
    }
