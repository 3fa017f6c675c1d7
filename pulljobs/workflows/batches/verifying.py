"""Check of `pulljobs verify` that the counts of batches equal their members. It only reads."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Q
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.sql import Row
from pulljobs.hooks import VerifiedPart
from pulljobs.storage.statements import run
from pulljobs.workflows.models import Batch

CHECKED: Final = 1_000
"""Largest number of batches that are checked, the newest ones."""
INVARIANTS: Final = {
    "members_are_counted": "A batch counts every job and every batch that was published into it.",
    "live_members_are_counted": "Members that neither were delivered nor died are live.",
    "dead_members_are_counted": "A batch counts every dead member.",
    "complete_batch_has_no_live_member": "A complete batch has no live member, unless it was "
    "redriven and another round is about to begin.",
}


def verify_part() -> VerifiedPart:
    """Check the `CHECKED` newest batches that go on or ended within a day. Return wrong ones."""
    using = settings().DATABASE
    recent = Q(completed_at=None) | Q(completed_at__gt=Now() - timedelta(days=1))
    rows = Batch.objects.using(using).filter(recent).order_by("-id")
    batch_ids = list(rows.values_list("id", flat=True)[:CHECKED])
    broken: defaultdict[str, list[str]] = defaultdict(list)
    for batch_id in batch_ids:
        for row in run(using, "verify_batch", {"batch_id": batch_id}):
            for invariant in _find_broken(row):
                broken[invariant].append(_describe(batch_id, row))
    return VerifiedPart(len(batch_ids), broken, INVARIANTS)


def _find_broken(row: Row) -> Iterator[str]:
    if row.members != row.published:
        yield "members_are_counted"
    if row.live != row.live_jobs:
        yield "live_members_are_counted"
    if row.dead < row.dead_jobs or row.delivered < 0:
        yield "dead_members_are_counted"
    if row.is_complete and row.live and not row.is_reopened:
        yield "complete_batch_has_no_live_member"


def _describe(batch_id: int, row: Row) -> str:
    counts = ("members", "published", "delivered", "dead", "dead_jobs", "live", "live_jobs")
    return f"{ids.encode(batch_id)} " + " ".join(f"{name}={getattr(row, name)}" for name in counts)
