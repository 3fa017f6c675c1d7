"""Progress of jobs: the newest report of a holder is written, and a lost holder writes none."""

from typing import Any
from uuid import uuid4

import pytest

from pulljobs import jobs, operating
from pulljobs.engine.outcomes import Held
from pulljobs.models import JobProgress
from pulljobs.storage import forgetting, progress
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import query

pytestmark = pytest.mark.django_db


def test_the_newest_report_is_written_once_and_shown_by_get() -> None:
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    [held] = claimed(consumer)
    progress.report(held, 1, 10, "first")
    progress.report(held, 4, 10, "fil\x00es" + "x" * 300)
    progress.report(Held(job_id, uuid4()), 9, 10, "of a holder that lost its lease")
    assert progress.has_reports()
    progress.write(USING)
    assert not progress.has_reports()
    shown = jobs.get(job_id).progress
    assert (shown.done, shown.total) == (4, 10)
    assert str(shown).startswith("4 of 10 (40 %) files")
    assert len(shown.note) == 200


@pytest.mark.parametrize("done", [-1, float("nan"), None, "half", 10**400, [1]])
def test_a_progress_that_is_no_number_from_0_on_is_refused(done: Any) -> None:
    """A progress that is no number from 0 on is refused, as it would stop reports of other jobs."""
    with pytest.raises(ValueError, match="done must be"):
        progress.report(Held(1, uuid4()), done, None, "")


def test_the_progress_of_a_job_that_has_ended_is_forgotten_after_a_day() -> None:
    consumer = ConsumerFactory.create()
    [live] = published(consumer)
    ended = 1
    for id in (ended, live):
        JobProgress.objects.create(job_id=id, done=1, reported_at="2026-01-01T00:00:00Z")
    query("UPDATE pulljobs_progress SET reported_at = now() - interval '2 days'")
    assert progress.forget_old(USING) == 1
    assert JobProgress.objects.get().pk == live


def test_one_maintenance_forgets_all_outdated_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forgetting, "AT_ONCE", 2)
    for id in range(5):
        JobProgress.objects.create(job_id=id, done=1, reported_at="2026-01-01T00:00:00Z")
    operating.maintain()
    assert not JobProgress.objects.exists()
