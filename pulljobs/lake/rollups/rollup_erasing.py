"""Erasure of the errors and keys of erased messages from the rollups."""

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Final

from pulljobs import ids
from pulljobs.lake.models import ErrorFingerprint, HotKey, Rollup
from pulljobs.lake.models.rollups import Period
from pulljobs.lake.rollups import hours

BEGINS: Final[Mapping[Period, Callable[[datetime], datetime]]] = {
    Period.HOUR: hours.begin_hour,
    Period.DAY: hours.day_of,
    Period.MONTH: hours.month_of,
}
"""Function that returns the start of the period in which a time is."""


def erase_contents(
    using: str, message_ids: Collection[int], keys: Collection[str], job_ids: Collection[int]
) -> None:
    """Remove the erased errors and keys from the rollups.

    Samples of errors become empty. Frequent keys are deleted, and so are the sketches of the keys,
    from which a key cannot be removed.
    """
    ErrorFingerprint.objects.using(using).filter(sample_job__in=job_ids).update(sample="")
    if not keys:
        return
    HotKey.objects.using(using).filter(key__in=keys).delete()
    published = {ids.time_of(id) for id in message_ids}
    for period, begin in BEGINS.items():
        starts = {begin(time) for time in published}
        rollups = Rollup.objects.using(using).filter(period=period, starts_at__in=starts)
        rollups.exclude(keys_sketch=None).update(keys_sketch=None)
