"""Section of the dashboard with limits: how much of its limits a consumer or limit group uses."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from django.db.models import Q
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.sections import Section
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.models import Consumer, LimitGroup
from pulljobs.models.flow import FlowLimits
from pulljobs.storage import backlog, settlement_history, turns
from pulljobs.storage.settlement_history import Pace
from pulljobs.storage.turns import TurnKeys

NAME: Final = "limits"
TEMPLATE: Final = "admin/pulljobs/dashboard/limits.html"
SHOWN: Final = 40
"""Largest number of consumers in the table, the first by name, and of limit groups."""
COUNTED: Final = 10_000
KEYS: Final = 3
"""Largest number of keys that a row names."""
NO_KEY: Final = "–"
LIMITED: Final = Q(rate_per_second__isnull=False) | Q(max_in_flight__isnull=False)


@dataclass(frozen=True)
class LimitedRow:
    """Row of the table: a consumer or a limit group, and how much of its limits it uses."""

    name: str
    address: str | None
    limited: FlowLimits
    """Consumer or limit group that has the limits."""
    settled: float
    """Settlements of the last minute, for a limit group those of all its consumers."""
    in_flight: int
    throttled_until: datetime | None = None
    """End of the throttle of the consumer, or None if it is not throttled."""
    throttled_keys: int = 0
    full_keys: int = 0
    """Number of keys with as many jobs in flight as they may have."""
    waiting_keys: Sequence[str] = ()
    """Keys whose turn comes next, each with the time for which it has been due."""

    @property
    def limits(self) -> str:
        """Limits as text, such as "5 in flight", or "" if there are none."""
        return self.limited.describe_limits()

    @property
    def used(self) -> str:
        """Settlements of the last minute, as "40 of 60" if a rate allows 60, else as "40"."""
        if self.limited.rate_per_second is None:
            return formats.number(round(self.settled))
        values = {
            "used": formats.number(round(self.settled)),
            "allowed": formats.number(round(self.limited.rate_per_second * 60)),
        }
        return _("%(used)s of %(allowed)s") % values

    @property
    def used_share(self) -> float:
        """Used share of the rate limit in per cent, for a bar. Without a rate it is 0."""
        per_minute = (self.limited.rate_per_second or 0.0) * 60
        return round(min(100.0, 100 * self.settled / per_minute), 1) if per_minute else 0.0

    @property
    def held(self) -> str:
        """Jobs in flight, as "3 of 5" if a concurrency limit allows 5, else as "3"."""
        bound = self.limited.max_in_flight
        held = formats.number(self.in_flight)
        if bound is None:
            return held
        return _("%(used)s of %(allowed)s") % {"used": held, "allowed": formats.number(bound)}

    @property
    def throttled(self) -> str:
        """Text with the end of the throttle, or "" if there is none."""
        until = self.throttled_until
        return "" if until is None else _("throttled until %s") % formats.timestamp(until)


@dataclass(frozen=True)
class Usage:
    """Maker of the table's rows, from figures that were read for all rows together."""

    at: datetime
    links: Links
    pace: Pace
    held: Mapping[int, int]
    """Number of jobs in flight by consumer."""
    keys: Mapping[int, TurnKeys]
    """Keys by consumer, of consumers whose keys take turns."""

    def describe(self, name: str, limited: FlowLimits, of: Sequence[Consumer]) -> LimitedRow:
        """Return the row of a consumer or limit group, with sums over the consumers in `of`."""
        settled = sum(self.pace.per_minute(consumer.pk) for consumer in of)
        in_flight = sum(self.held.get(consumer.pk, 0) for consumer in of)
        address = self.links.page(type(limited), "change", limited.pk)
        return LimitedRow(name, address, limited, settled, in_flight)

    def describe_consumer(self, consumer: Consumer) -> LimitedRow:
        """Return the row of a consumer with its own limits, its throttle and its waiting keys."""
        row = self.describe(consumer.path, consumer, [consumer])
        until = consumer.throttled_until
        row = replace(row, throttled_until=until if until and until > self.at else None)
        keys = self.keys.get(consumer.pk)
        return row if keys is None else self._with_keys(row, keys)

    def _with_keys(self, row: LimitedRow, keys: TurnKeys) -> LimitedRow:
        """Return the row with the keys to claim next, and counts of throttled and of full keys."""
        due = zip(keys.next_keys, keys.due_since, strict=True)
        return replace(
            row,
            throttled_keys=keys.throttled_keys,
            full_keys=keys.full_keys,
            waiting_keys=[f"{key or NO_KEY} ({self._age(since)})" for key, since in due],
        )

    def _age(self, since: datetime) -> str:
        return formats.duration(max(0.0, (self.at - since).total_seconds()))


def read_section(at: datetime, links: Links) -> Section | None:
    """Return the section, or None if no consumer or group has a limit, turns or a throttle."""
    using = settings().DATABASE
    rows = Consumer.objects.using(using).filter(deleted_at=None).select_related("channel")
    shown = rows.filter(LIMITED | Q(takes_turns=True) | Q(throttled_until__gt=at)).order_by(
        "channel__name", "name"
    )
    consumers = list(shown[:SHOWN])
    groups = list(LimitGroup.objects.using(using).filter(LIMITED).order_by("name")[:SHOWN])
    if not consumers and not groups:
        return None
    members = list(rows.filter(limit_group__in=groups))
    usage = _read_usage(at, links, consumers, members)
    content = [
        usage.describe(
            group.name, group, [each for each in members if each.limit_group_id == group.pk]
        )
        for group in groups
    ]
    return Section(NAME, TEMPLATE, [*content, *map(usage.describe_consumer, consumers)])


def _read_usage(
    at: datetime, links: Links, consumers: Sequence[Consumer], members: Sequence[Consumer]
) -> Usage:
    """Read the figures of the shown consumers and of the members of limit groups."""
    using = settings().DATABASE
    counted = backlog.count_jobs(using, list({row.pk for row in (*consumers, *members)}), COUNTED)
    held = {row.consumer_id: row.in_flight for row in counted}
    by_turn = [consumer.pk for consumer in consumers if consumer.takes_turns]
    keys = turns.read_turn_keys(using, by_turn, COUNTED, KEYS)
    return Usage(at, links, settlement_history.read_pace(using, at), held, keys)
