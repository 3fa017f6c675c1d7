"""Limits of consumers and of limit groups, and the tokens of their rate limits."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.translation import gettext_lazy as _

from pulljobs import rates
from pulljobs.models.fields import ChangedAtField
from pulljobs.models.token_holders import validate_name

LEAST_1 = _("It must be at least 1; to stop claims, pause the consumer.")
_BURST = _("It must be from 1 to %(most)d, and needs a rate without a window.") % {
    "most": rates.MOST
}
_WINDOW = _("It needs a rate.")


def raise_wrong(checks: Mapping[str, tuple[bool, Any]]) -> None:
    """Raise ValidationError for the fields whose values are wrong.

    `checks` has a pair for each field: True if the value is right, and the text of the error.
    """
    if wrong := {name: text for name, (is_right, text) in checks.items() if not is_right}:
        raise ValidationError(wrong)


def validate_rate(text: str) -> None:
    """Raise ValidationError unless the text is a rate such as 100/m, or empty."""
    try:
        rates.parse_rate(text)
    except ValueError as error:
        raise ValidationError(str(error)) from error


class FlowBucket(models.Model):
    """Tokens of the rate limit of a consumer or limit group. Without a row, the bucket is full.

    Claims and releases lock and write the row. It is apart from the consumer's row, which every
    claim and publish reads.
    """

    pk = models.CompositePrimaryKey("consumer_id", "group_id")
    consumer_id = models.BigIntegerField(default=0)
    """Id of the consumer, or 0 for the bucket of a limit group."""
    group_id = models.BigIntegerField(default=0)
    """Id of the limit group, or 0 for the bucket of a consumer."""
    tokens = models.FloatField()
    """Tokens at `filled_at`. The bucket holds no more than `burst`."""
    filled_at = models.DateTimeField()
    per_second = models.FloatField()
    """Rate in tokens per second when a claim wrote the row."""
    burst = models.FloatField()
    """Size of the bucket when a claim wrote the row."""
    window_seconds = models.FloatField(null=True)
    """Length of the rate's fixed window when a claim wrote the row. NULL: a token bucket."""
    charged_since = models.DateTimeField()
    """Time from which claims took tokens. A job claimed earlier returns none when released."""

    class Meta:
        db_table = "pulljobs_flow_bucket"
        default_permissions = ()

    def __str__(self) -> str:
        return (
            f"bucket of group {self.group_id}" if self.group_id else f"bucket of {self.consumer_id}"
        )


class FlowLimits(models.Model):
    """Concurrency limit and rate limit: fields that consumers and limit groups have in common."""

    max_in_flight = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=_("Jobs in flight at once, over all workers and clients; empty: any number."),
    )
    rate = models.CharField(
        max_length=24,
        blank=True,
        default="",
        db_default="",
        validators=[validate_rate],
        help_text=_("Jobs that are claimed in a time, such as 100/m (s, m, h, d); empty: any."),
    )
    rate_burst = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=_("Jobs that may be claimed at once after a pause; empty: those of a second."),
    )
    rate_window = models.BooleanField(
        default=False,
        db_default=False,
        help_text=_("The rate counts in each second, minute, hour or day (UTC) of the clock."),
    )
    rate_per_second = models.FloatField(null=True, editable=False)
    """Value of `rate` in jobs per second, or NULL without a rate."""
    window_seconds = models.FloatField(null=True, editable=False)
    """Length of the fixed window, or NULL without one."""
    derived: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "rate": ("rate_per_second", "window_seconds"),
        "rate_window": ("window_seconds",),
    }
    """Fields that `save` computes, by the field from which it does, for `update_fields`."""
    limit_fields: ClassVar[frozenset[str]] = frozenset(
        {"max_in_flight", "rate", "rate_burst", "rate_window"}
    )
    """Fields that `check_limits` reads."""

    class Meta:
        abstract = True

    def save(self, *args: Any, **kwargs: Any) -> None:
        written = kwargs.get("update_fields")
        if written is None or self.limit_fields & set(written):
            self.check_limits()
        self.rate_per_second, is_new = self.shared_rate(), self._state.adding
        has_window = self.rate_window and self.rate
        self.window_seconds = rates.window_seconds(self.rate) if has_window else None
        if written is not None:
            computed = (name for field in written for name in self.derived.get(field, ()))
            kwargs["update_fields"] = written = {*written, *computed}
        super().save(*args, **kwargs)
        is_written = written is None or "rate_per_second" in written
        if self.rate_per_second is None and not is_new and is_written:
            # Claims from now on take no tokens, so none may come back if a rate is set again.
            self.buckets().delete()

    def shared_rate(self) -> float | None:
        """Return the rate in jobs per second, or None if there is no rate.

        With `rate_per_key` each key has a rate of its own, and None is returned as well.
        """
        return rates.parse_rate(self.rate)

    def buckets(self) -> "models.QuerySet[FlowBucket]":
        """Return a query for the bucket of this row's rate, which has at most one row."""
        raise NotImplementedError

    def describe_limits(self) -> str:
        """Return text such as "100/m and 5 in flight", or an empty text without limits."""
        return " and ".join(self._words_of_limits())

    def _words_of_limits(self) -> Iterator[str]:
        rate = self.rate
        if rate and self.rate_window:
            rate += " in fixed windows"
        elif rate and self.rate_burst:
            rate += f" with a burst of {self.rate_burst:,}"
        if rate:
            yield rate
        if self.max_in_flight is not None:
            yield f"{self.max_in_flight:,} in flight"

    def clean(self) -> None:
        super().clean()
        self.check_limits()

    def check_limits(self) -> None:
        """Raise ValidationError for limits that contradict each other, or let no job run."""
        is_plain = bool(self.rate) and not self.rate_window
        raise_wrong(
            {
                "max_in_flight": (self.max_in_flight is None or self.max_in_flight >= 1, LEAST_1),
                "rate_window": (bool(self.rate) or not self.rate_window, _WINDOW),
                "rate_burst": (
                    self.rate_burst is None or (is_plain and 1 <= self.rate_burst <= rates.MOST),
                    _BURST,
                ),
            }
        )


class LimitGroup(FlowLimits):
    """Limit group: limits that several consumers share, for example those of a vendor's API."""

    name = models.CharField(max_length=255, unique=True, validators=[validate_name])
    created_at = models.DateTimeField(auto_now_add=True)
    changed_at = ChangedAtField(editable=False)

    class Meta:
        db_table = "pulljobs_limit_group"

    def __str__(self) -> str:
        return self.name

    def buckets(self) -> "models.QuerySet[FlowBucket]":
        return FlowBucket.objects.using(self._state.db).filter(consumer_id=0, group_id=self.pk)
