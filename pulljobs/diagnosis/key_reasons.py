"""Place of a job's key among the keys that wait for their turn."""

from collections.abc import Iterator
from typing import Final

from django.db.models import Q

from pulljobs.conf import settings
from pulljobs.diagnosis.wait_reasons import WaitReason
from pulljobs.models import Consumer, FlowKey, Job

COUNTED: Final = 10_000
"""Largest number of keys that are counted."""


def find_place(job: Job, consumer: Consumer) -> Iterator[WaitReason]:
    """Yield a reason if the turn of other keys comes before that of the job's key."""
    if not consumer.takes_turns or job.turn_key is None:
        return
    rows = FlowKey.objects.using(settings().DATABASE).filter(consumer_id=consumer.pk)
    own = rows.filter(key=job.turn_key, turn_at__isnull=False).first()
    if own is None:
        return
    earlier = Q(turn_at__lt=own.turn_at) | Q(turn_at=own.turn_at, key__lt=own.key)
    ahead = Q(turn_rank__gt=own.turn_rank) | (Q(turn_rank=own.turn_rank) & earlier)
    before = rows.filter(ahead, turn_at__isnull=False)[:COUNTED].count()
    if before:
        more = " or more" if before == COUNTED else ""
        yield WaitReason(
            "key_turn",
            f"Keys whose turn comes before that of its key: {before:,}{more}.",
            limit={"of": "key", "keys_before": before, "weight": own.weight},
        )
