"""Metrics of batches that are read from the database."""

from collections.abc import Iterator
from typing import Final

from pulljobs.metrics.families import Family, Sample, Type
from pulljobs.workflows.models import Batch

CAP: Final = 10_000
FAMILIES: Final = (
    Family(
        "pulljobs_batches_live",
        Type.GAUGE,
        (),
        f"Batches that are not complete, at most {CAP:,} of them.",
    ),
)


def read_samples(using: str) -> Iterator[Sample]:
    """Yield the number of batches that are not complete, or `CAP` if there are more."""
    live = Batch.objects.using(using).filter(completed_at=None)
    yield "pulljobs_batches_live", (), float(live.order_by("id")[:CAP].count())
