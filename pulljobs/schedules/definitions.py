"""Definition of a schedule: arguments of `create`, with their check and conversion to columns."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final

from pulljobs.conf import settings
from pulljobs.engine.validation import NewMessage
from pulljobs.errors import InvalidSchedule
from pulljobs.models import Producer
from pulljobs.publishing import Draft, Payload, check_producer, checked
from pulljobs.schedules.firing import message_of
from pulljobs.schedules.models import LONGEST_NAME, Missed, Overlap, Schedule
from pulljobs.schedules.rule_checks import LEAST_INTERVAL, check_interval
from pulljobs.schedules.rules import Rule, make_rule

RULE_FIELDS: Final = ("cron", "every", "timezone", "starts_at", "ends_at", "jitter")
MESSAGE_FIELDS: Final = ("payload", "content_type", "headers", "key", "priority")
LONGEST_SLOT: Final = datetime(9998, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
HIGHEST_BOUND: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Arguments of `create`: rule, message and policies of a schedule, not checked yet."""

    name: str
    channel: str
    payload: Payload = None
    cron: str = ""
    every: timedelta | None = None
    timezone: str = "UTC"
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    jitter: timedelta = timedelta()
    missed: str = Missed.LATEST
    missed_bound: int = 100
    misfire_grace: timedelta | None = None
    overlap: str = Overlap.ALLOW
    key: str | None = None
    priority: int = 0
    cost: int = 1
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    producer: Producer | None = None

    @classmethod
    def make(cls, options: Mapping[str, Any]) -> "Definition":
        """Return the definition of keyword arguments.

        Raise InvalidSchedule for an unknown keyword, with the nearest valid one.
        """
        check_names(options)
        return cls(**_normalize(options))

    @classmethod
    def from_row(cls, row: Schedule) -> "Definition":
        """Return the arguments with which `create` would write this row."""
        same = [each.name for each in fields(cls) if each.name not in ("channel", "payload")]
        options = {name: getattr(row, name) for name in same}
        return cls(channel=row.channel_name, payload=bytes(row.payload), **options)

    def changed(self, options: Mapping[str, Any]) -> "Definition":
        """Return a copy with changed options. A new `cron` removes `every`, and the reverse.

        A new payload removes the content type, unless the options give one. Raise InvalidSchedule
        for an unknown option.
        """
        check_names(options)
        options = _normalize(options)
        both = "cron" in options and "every" in options
        if options.get("cron") and not both:
            options = {**options, "every": None}
        elif options.get("every") and not both:
            options = {**options, "cron": ""}
        if "payload" in options and "content_type" not in options:
            options = {**options, "content_type": None}
        return replace(self, **options)

    def make_rule(self, now: datetime) -> Rule:
        """Check the rule and return it. An interval without `starts_at` begins at `now`."""
        return make_rule(now=now, **{name: getattr(self, name) for name in RULE_FIELDS})

    def columns(self, rule: Rule) -> dict[str, Any]:
        """Check the options other than the rule, and return the columns of the row by name.

        Raise InvalidSchedule, and for the message what `publish` raises.
        """
        self._check_name()
        self._check_policies()
        message = self._message()
        return {
            "name": self.name,
            "channel_name": self.channel,
            **{name: getattr(rule, name) for name in RULE_FIELDS},
            **{name: getattr(message, name) for name in MESSAGE_FIELDS},
            "cost": self.cost,
            "missed": self.missed,
            "missed_bound": self.missed_bound,
            "misfire_grace": self.misfire_grace,
            "overlap": self.overlap,
            "producer": self.producer,
        }

    def stored_payload(self) -> bytes:
        """Return the encoded payload, as the row stores it."""
        return bytes(self._message().payload)

    def _check_name(self) -> None:
        name = self.name
        valid = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
        if not valid or "/" in name or name in (".", ".."):
            raise InvalidSchedule(
                "name",
                f"The name must have 1 to {LONGEST_NAME} printable characters without slashes, "
                f"and must not be a path such as '..', not {name!r}.",
            )

    def _check_policies(self) -> None:
        for name, choices in (("missed", Missed), ("overlap", Overlap)):
            if getattr(self, name) not in choices.values:
                raise InvalidSchedule(
                    name, f"{name} must be one of {', '.join(choices.values)}, not "
                    f"{getattr(self, name)!r}."
                )  # fmt: skip
        bound = self.missed_bound
        if type(bound) is not int or not 1 <= bound <= HIGHEST_BOUND:
            raise InvalidSchedule(
                "missed_bound",
                f"missed_bound must be a whole number from 1 to {HIGHEST_BOUND}, not {bound!r}.",
            )
        if self.misfire_grace is not None:
            check_interval("misfire_grace", self.misfire_grace, least=LEAST_INTERVAL)

    def _message(self) -> NewMessage:
        """Check the message and return it.

        The check includes the headers that firing adds, at their greatest length.
        """
        if self.producer is not None:
            check_producer(self.producer)
        draft = Draft(
            payload=self.payload,
            key=self.key,
            priority=self.priority,
            cost=self.cost,
            headers=self.headers or {},
            content_type=self.content_type,
        )
        message = checked(draft, settings())
        whole = message_of(self.name, LONGEST_SLOT, message)
        checked(Draft(payload=b"", headers=whole.headers), settings())
        return message


def defaults() -> dict[str, Any]:
    """Return the defaults of all optional arguments of `declare`, except the payload, by name."""
    minimal = Definition(name="", channel="")
    optional = {each.name for each in fields(Definition)} - {"name", "channel", "payload"}
    return {name: getattr(minimal, name) for name in optional}


def _normalize(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the options as a row has them, so that a comparison finds real changes only."""
    cron, no_jitter = options.get("cron"), {"jitter": timedelta()}
    spaced = {"cron": " ".join(cron.split())} if isinstance(cron, str) else {}
    is_none = "jitter" in options and options["jitter"] is None
    return {**options, **spaced, **(no_jitter if is_none else {})}


def check_names(options: Mapping[str, Any]) -> None:
    """Raise InvalidSchedule for a keyword that is no option of a schedule."""
    names = [each.name for each in fields(Definition)]
    for name in options:
        if name not in names:
            [nearest] = get_close_matches(name, names, 1, 0)
            raise InvalidSchedule(name, f"A schedule has no option {name!r}: try {nearest!r}.")
