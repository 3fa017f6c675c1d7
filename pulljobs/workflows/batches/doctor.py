"""Checks of batches for `manage.py pulljobs doctor`."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.diagnosis.database_checks import Finding, list_names
from pulljobs.models import BatchSum
from pulljobs.storage import nodes
from pulljobs.workflows.models import Batch

LATE: Final = timedelta(minutes=1)
FORGOTTEN: Final = timedelta(days=7)
LISTED: Final = 1_000


def check_batches() -> Iterator[Finding]:
    """Report batches with a callback that is refused, with overdue counts, or open for a week."""
    using = settings().DATABASE
    rows = Batch.objects.using(using).filter(completed_at=None).order_by("id")
    for row in rows.exclude(error=None).defer("callbacks")[:LISTED]:
        yield Finding(
            "refused_callback",
            True,
            f"Batch {row} can't publish its callback, and does not complete before: {row.error}",
        )
    # The id of a sum has its time.
    old = BatchSum.objects.filter(
        batch_id=OuterRef("id"), id__lt=ids.first_of(nodes.clock(using) - LATE)
    )
    if unseen := [str(row) for row in rows.filter(Exists(old), error=None).only("name")[:LISTED]]:
        yield Finding(
            "unmerged_batches",
            True,
            f"Members of batches ended more than a minute ago, and no process counts them: "
            f"{list_names(unseen)}. Start a worker that has pulljobs.workflows installed.",
        )
    stale = rows.filter(closed_at=None, created_at__lt=Now() - FORGOTTEN)
    if forgotten := [str(row) for row in stale.only("name")[:LISTED]]:
        yield Finding(
            "open_batches",
            False,
            f"Batches are open for more than a week, so they never complete: "
            f"{list_names(forgotten)}. Close or cancel them.",
        )
