"""Checks of `pulljobs doctor` on keys that take turns: throttled keys and keys at their limit."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import Max, QuerySet
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.diagnosis.database_checks import Finding, list_names
from pulljobs.models import Consumer, FlowKey, Job, Lease
from pulljobs.storage import nodes

LOOKED_AT: Final = 1_000
"""Largest number of keys of a consumer that a check reads."""


def throttled_keys() -> Iterator[Finding]:
    """Report consumers with keys that are throttled now."""
    for consumer in _by_turn():
        rows = _keys_of(consumer).filter(throttled_until__gt=Now())
        keys = list(rows.order_by("key").values_list("key", flat=True)[:LOOKED_AT])
        if keys:
            end = rows.aggregate(end=Max("throttled_until"))["end"]
            text = (
                f"{consumer.path} has throttled keys, the last until {times.format_time(end)}: "
                f"{_list_keys(keys)}. `pulljobs resume` ends that."
            )
            yield Finding("throttled_keys", False, text)


def keys_without_slots() -> Iterator[Finding]:
    """Report keys at `max_in_flight_per_key` with a job claimed over a lease duration ago."""
    for consumer in _by_turn().exclude(max_in_flight_per_key=None):
        rows = _keys_of(consumer).filter(is_full=True).order_by("key")
        held = dict(rows.values_list("key", "holders")[:LOOKED_AT])
        long = _held_for_long(consumer, {id for holders in held.values() for id in holders})
        keys = [key for key, holders in held.items() if long.intersection(holders)]
        if keys:
            text = (
                f"{consumer.path} has keys in which jobs have been in flight for longer than a "
                f"lease, and hold slots that others wait for: {_list_keys(keys)}. `pulljobs "
                "explain JOB` names the holders."
            )
            yield Finding("keys_without_slots", False, text)


def _held_for_long(consumer: Consumer, job_ids: set[int]) -> set[int]:
    """Return which of these jobs were claimed over a lease duration ago, by their ids."""
    using = settings().DATABASE
    held = dict(Job.objects.using(using).filter(id__in=job_ids).values_list("id", "lease_token"))
    before = nodes.clock(using) - max(consumer.lease_duration, timedelta(seconds=1))
    leases = Lease.objects.using(using).filter(lease_token__in=set(held.values()))
    old = set(leases.filter(claimed_at__lt=before).values_list("lease_token", flat=True))
    return {id for id, lease_token in held.items() if lease_token in old}


def _by_turn() -> "QuerySet[Consumer]":
    rows = Consumer.objects.using(settings().DATABASE).filter(takes_turns=True, deleted_at=None)
    return rows.select_related("channel").order_by("channel__name", "name")


def _keys_of(consumer: Consumer) -> "QuerySet[FlowKey]":
    return FlowKey.objects.using(settings().DATABASE).filter(consumer_id=consumer.pk)


def _list_keys(keys: list[str]) -> str:
    return list_names([key or "that of jobs without a key" for key in keys])
