"""Limits that keep consumers from claiming ready jobs, for the dashboard and `pulljobs top`."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from django.db.models import Q

from pulljobs.models import Consumer, LimitGroup
from pulljobs.models.flow import FlowBucket
from pulljobs.storage import turns
from pulljobs.storage.rows import Refusal

COUNTED: Final = 1_000
"""Largest number of keys that are counted for a consumer."""


class LimitHold(NamedTuple):
    """Limit because of which a claim of a consumer would get no job now."""

    code: Refusal
    """Limit that holds jobs back, such as RATE_LIMITED, as the result of a claim names it."""
    until: datetime | None = None
    """End of the throttle, if `code` is THROTTLED."""
    full_keys: int = 0
    """Number of keys with as many jobs in flight as they may have."""
    later_keys: int = 0
    """Number of keys that have no token of their rate limit or are throttled."""


def read_holds(
    using: str, now: datetime, consumers: Sequence[Consumer], in_flight: Mapping[int, int]
) -> dict[int, LimitHold]:
    """Return the limit that holds back each consumer, by the primary key of the consumer.

    Of several it is the first of throttle, concurrency limit, rate limit and limits of keys.
    Consumers that no limit holds back have no entry. `in_flight` has the number of jobs in flight
    by consumer. For consumers without limits this runs no query.
    """
    holds = _find_held_keys(using, consumers)
    holds |= {pk: LimitHold(Refusal.RATE_LIMITED) for pk in _find_empty(using, now, consumers)}
    full = _find_full(using, consumers, in_flight)
    holds |= dict.fromkeys(full, LimitHold(Refusal.MAX_IN_FLIGHT))
    holds |= {
        each.pk: LimitHold(Refusal.THROTTLED, each.throttled_until)
        for each in consumers
        if each.throttled_until is not None and each.throttled_until > now
    }
    return holds


def _find_full(
    using: str, consumers: Sequence[Consumer], in_flight: Mapping[int, int]
) -> Iterator[int]:
    """Yield the ids of consumers whose concurrency limit, or that of their group, is reached."""
    groups = {each.limit_group_id for each in consumers if each.limit_group_id is not None}
    rows = LimitGroup.objects.using(using).filter(pk__in=groups).exclude(max_in_flight=None)
    bounds = dict(rows.values_list("pk", "max_in_flight")) if groups else {}
    members = Consumer.objects.using(using).filter(limit_group__in=bounds)
    held: Counter[int | None] = Counter()
    for pk, group_id in members.values_list("pk", "limit_group_id") if bounds else ():
        held[group_id] += in_flight.get(pk, 0)
    for each in consumers:
        own = each.max_in_flight
        is_full = own is not None and in_flight.get(each.pk, 0) >= own
        group = each.limit_group_id
        if is_full or (group in bounds and held[group] >= (bounds[group] or 0)):
            yield each.pk


def _find_held_keys(using: str, consumers: Sequence[Consumer]) -> dict[int, LimitHold]:
    by_turn = [each.pk for each in consumers if each.takes_turns]
    return {
        pk: LimitHold(Refusal.KEY_LIMITED, None, held.full_keys, held.later_keys)
        for pk, held in turns.count_held_keys(using, by_turn, COUNTED).items()
        if (held.full_keys or held.later_keys) and not held.is_due
    }


def _find_empty(using: str, now: datetime, consumers: Sequence[Consumer]) -> set[int]:
    """Return the ids of consumers whose rate limit, or that of their group, has no token left."""
    own = {each.pk for each in consumers if each.rate_per_second is not None}
    groups = {each.limit_group_id for each in consumers if each.limit_group_id is not None}
    if not own | groups:
        return set()
    rows = FlowBucket.objects.using(using).filter(Q(consumer_id__in=own) | Q(group_id__in=groups))
    empty = {(row.consumer_id, row.group_id) for row in rows if _has_no_token(row, now)}
    return {
        each.pk
        for each in consumers
        if (each.pk, 0) in empty or (0, each.limit_group_id or 0) in empty
    }


def _has_no_token(bucket: FlowBucket, now: datetime) -> bool:
    """Return True if a token bucket or a fixed window has less than one token now."""
    passed = (now - bucket.filled_at).total_seconds()
    if bucket.window_seconds is None:
        return bucket.tokens + bucket.per_second * passed < 1
    length = timedelta(seconds=bucket.window_seconds)
    window = now - timedelta(seconds=now.timestamp() % length.total_seconds())
    return bucket.tokens < 1 and bucket.filled_at >= window
