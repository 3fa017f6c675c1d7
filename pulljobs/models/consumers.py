"""Model of consumers, whose rows users may save through the ORM. They set the rules for jobs."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.utils.translation import gettext_lazy as _

from pulljobs import backoff, encryption, rates, signing
from pulljobs.conf import LEAST_LEASE
from pulljobs.errors import LONGEST_DELAY, ConfigurationError
from pulljobs.models.channels import FROM_0, Channel
from pulljobs.models.fields import ClockTime, StatementTime
from pulljobs.models.flow import LEAST_1, FlowBucket, FlowLimits, LimitGroup, raise_wrong
from pulljobs.models.token_holders import TokenHolder

_ABOVE_0 = _("It must be above 0 and at most 100 years.")
_LEASE = _(
    "It must be at least %(least)g s and at most 100 years: holders renew a lease after a third "
    "of it."
) % {"least": LEAST_LEASE.total_seconds()}
_PUSH = _("A push consumer needs the URL to push to.")
_KEY_RATE = _("It needs a rate without a window.")
_BOUND = _("It needs a max_queued_per_key of 1 or more: 0 means any number.")
_EXCLUSIVE = _(
    "Exclusive keys run one job at a time, in order: turn off fair_by_key, rate_per_key and "
    "max_in_flight_per_key, or use max_in_flight_per_key=1 in place of exclusive keys."
)


def validate_strategy(text: str) -> None:
    """Raise ValidationError unless `backoff.expand` accepts the text as a retry strategy."""
    try:
        backoff.expand(text)
    except ValueError as error:
        raise ValidationError(str(error)) from error


def _is_above_0(span: timedelta) -> bool:
    return timedelta() < span <= LONGEST_DELAY


class Consumer(FlowLimits, TokenHolder):
    """Subscriber of a channel. Each message that is published there creates one job for it."""

    class Type(models.TextChoices):
        PULL = "pull", _("pull")
        PUSH = "push", _("push")

    class KeyOverflow(models.TextChoices):
        """Effect of a publish if the key has as many jobs as `max_queued_per_key` allows."""

        REJECT = "reject", _("refuse the message")
        DROP_OLDEST = "drop_oldest", _("kill the oldest queued job")
        REPLACE = "replace", _("take the place of the queued job")

    class KeyLimitCounts(models.TextChoices):
        """Jobs that count towards `max_queued_per_key`: queued ones, or also those in flight."""

        QUEUED = "queued", _("queued jobs")
        LIVE = "live", _("queued jobs and those in flight")

    channel = models.ForeignKey(Channel, models.PROTECT, related_name="consumers")
    type = models.CharField(max_length=4, choices=Type.choices, default=Type.PULL)
    callback_url = models.URLField(max_length=2000, blank=True)
    signing_secrets_sealed = models.TextField(blank=True, default="", db_default="", editable=False)
    """Encrypted secrets: the newest and the one before it. Both sign deliveries."""

    lease_duration = models.DurationField(
        default=timedelta(seconds=30), help_text=_("How long a claim holds without a renewal.")
    )
    protocol_lease_duration = models.DurationField(
        null=True,
        blank=True,
        help_text=_("How long a job POST holds a job; empty: PULLJOBS['PROTOCOL_LEASE']."),
    )

    retry_strategy = models.CharField(
        max_length=255,
        default="5,30,60",
        validators=[validate_strategy],
        help_text=_("none, constant:10, linear:1+2, exponential:1 or seconds such as 5,30,60."),
    )
    retry_delays = ArrayField(models.FloatField(), default=list, editable=False)
    retry_cap = models.FloatField(default=backoff.LONGEST, editable=False)
    retry_jitter = models.FloatField(
        default=0.2, help_text=_("Share of the delay that is random, within its cap.")
    )
    max_retries = models.PositiveSmallIntegerField(default=5)
    max_total_delay = models.DurationField(
        null=True,
        blank=True,
        help_text=_("No retry is planned later than this after the first run."),
    )
    max_deliveries = models.PositiveSmallIntegerField(default=20)

    exclusive_keys = models.BooleanField(
        default=False,
        db_default=False,
        help_text=_("Jobs of one key run one at a time, first in, first out."),
    )
    hold_key_on_retry = models.BooleanField(
        default=True,
        db_default=True,
        help_text=_("A job that waits for its retry, or is snoozed, keeps its key."),
    )
    max_queued_per_key = models.PositiveIntegerField(
        default=0,
        db_default=0,
        help_text=_("How many jobs of one key there may be; 0: any number."),
    )
    key_overflow = models.CharField(
        max_length=11,
        choices=KeyOverflow.choices,
        default=KeyOverflow.REJECT,
        db_default=KeyOverflow.REJECT,
    )
    key_limit_counts = models.CharField(
        max_length=6,
        choices=KeyLimitCounts.choices,
        default=KeyLimitCounts.QUEUED,
        db_default=KeyLimitCounts.QUEUED,
    )
    limit_group = models.ForeignKey(
        LimitGroup,
        models.PROTECT,
        null=True,
        blank=True,
        related_name="consumers",
        help_text=_("Group whose limits its consumers share."),
    )
    max_in_flight_per_key = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text=_("Jobs of one key in flight at once, in no order; empty: any number."),
    )
    rate_per_key = models.BooleanField(
        default=False, db_default=False, help_text=_("The rate holds for each key by itself.")
    )
    key_rate_per_second = models.FloatField(null=True, editable=False)
    """Jobs a second of `rate` for each key, or NULL without `rate_per_key`."""
    fair_by_key = models.BooleanField(
        default=False,
        db_default=False,
        help_text=_("Keys with waiting jobs take turns; a priority counts inside a key."),
    )
    takes_turns = models.GeneratedField(
        expression=models.Case(
            models.When(
                models.Q(fair_by_key=True)
                | models.Q(rate_per_key=True)
                | models.Q(max_in_flight_per_key__isnull=False),
                then=models.Value(True),
            ),
            default=models.Value(False),
        ),
        output_field=models.BooleanField(),
        db_persist=True,
    )
    """True if its keys take turns."""
    max_waiting = models.PositiveIntegerField(
        default=512, db_default=512, help_text=_("Pulls over HTTP that may wait at once.")
    )

    paused_until = models.DateTimeField(null=True, blank=True)
    throttled_until = StatementTime(null=True, editable=False)
    """End of the throttle that a handler or a push endpoint has asked for, or NULL."""
    deleted_at = models.DateTimeField(null=True, blank=True, editable=False)

    derived = {
        **FlowLimits.derived,
        "retry_strategy": ("retry_delays", "retry_cap"),
        "rate": (*FlowLimits.derived["rate"], "key_rate_per_second"),
        "rate_per_key": ("rate_per_second", "key_rate_per_second"),
    }
    limit_fields = FlowLimits.limit_fields | {
        "exclusive_keys",
        "fair_by_key",
        "key_limit_counts",
        "key_overflow",
        "max_in_flight_per_key",
        "max_queued_per_key",
        "rate_per_key",
    }

    class Meta:
        permissions = [
            ("pause_consumer", "Can pause consumers and have them go on"),
            ("rotate_consumer", "Can give consumers a new token"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["channel", "name"], name="pulljobs_consumer_name"),
            models.CheckConstraint(
                condition=models.Q(lease_duration__gt=timedelta(0)), name="pulljobs_consumer_lease"
            ),
            models.CheckConstraint(
                condition=models.Q(retry_jitter__gte=0, retry_jitter__lte=1),
                name="pulljobs_consumer_jitter",
            ),
            models.CheckConstraint(
                condition=models.Q(max_deliveries__gte=1), name="pulljobs_consumer_deliveries"
            ),
        ]
        indexes = [
            models.Index(  # every finish reads it
                fields=["id"],
                condition=models.Q(exclusive_keys=True)
                | models.Q(max_in_flight__isnull=False)
                | models.Q(limit_group__isnull=False)
                | models.Q(max_in_flight_per_key__isnull=False)
                | models.Q(rate_per_key=True),
                name="pulljobs_consumer_guarded",
            ),
        ]

    def save(self, *args: Any, **kwargs: Any) -> None:
        delays = backoff.expand(self.retry_strategy)
        self.retry_delays, self.retry_cap = list(delays.seconds), delays.cap
        self.key_rate_per_second = rates.parse_rate(self.rate) if self.rate_per_key else None
        if self._state.adding or self.limit_group_id is None:
            super().save(*args, **kwargs)
        else:
            self._save_in_group(*args, **kwargs)

    @property
    def names(self) -> tuple[str, str]:
        """Names of the channel and of the consumer."""
        return self.channel.name, self.name

    @property
    def path(self) -> str:
        """Consumer path, `channel/consumer`."""
        return f"{self.channel.name}/{self.name}"

    def _save_in_group(self, *args: Any, **kwargs: Any) -> None:
        """Save a consumer with a limit group. If it joined, set the group's `charged_since` to now.

        Its jobs that were claimed before took no token from the group, so they return none.
        """
        with transaction.atomic(using=kwargs.get("using") or self._state.db):
            rows = Consumer.objects.using(self._state.db).select_for_update().filter(pk=self.pk)
            before = rows.values_list("limit_group_id", flat=True).first()
            super().save(*args, **kwargs)
            if before != self.limit_group_id:
                buckets = FlowBucket.objects.using(self._state.db)
                own = buckets.filter(consumer_id=0, group_id=self.limit_group_id or 0)
                own.update(charged_since=ClockTime())

    def shared_rate(self) -> float | None:
        return None if self.rate_per_key else super().shared_rate()

    def _words_of_limits(self) -> Iterator[str]:
        words = super()._words_of_limits()
        if self.rate_per_key:
            yield f"{next(words)} for each key"
        yield from words
        if self.max_in_flight_per_key is not None:
            yield f"{self.max_in_flight_per_key:,} of a key in flight"
        if self.fair_by_key:
            yield "fair shares of keys"

    def buckets(self) -> "models.QuerySet[FlowBucket]":
        return FlowBucket.objects.using(self._state.db).filter(consumer_id=self.pk, group_id=0)

    def clean(self) -> None:
        """Raise ValidationError for values that constraints refuse or with which no job runs."""
        super().clean()
        bounds = {
            "callback_url": (self.type != self.Type.PUSH or bool(self.callback_url), _PUSH),
            "lease_duration": (LEAST_LEASE <= self.lease_duration <= LONGEST_DELAY, _LEASE),
            "protocol_lease_duration": (
                self.protocol_lease_duration is None or _is_above_0(self.protocol_lease_duration),
                _ABOVE_0,
            ),
            "max_total_delay": (
                self.max_total_delay is None
                or timedelta() <= self.max_total_delay <= LONGEST_DELAY,
                FROM_0,
            ),
            "retry_jitter": (0 <= self.retry_jitter <= 1, _("It must be from 0 to 1.")),
            "max_deliveries": (self.max_deliveries >= 1, _("It must be at least 1.")),
        }
        raise_wrong(bounds)

    def check_limits(self) -> None:
        super().check_limits()
        self._check_choices()
        slots = self.max_in_flight_per_key
        by_turn = self.fair_by_key or self.rate_per_key or slots is not None
        has_rate = bool(self.rate) and not self.rate_window
        bounds = {
            "max_in_flight_per_key": (slots is None or slots >= 1, LEAST_1),
            "rate_per_key": (not self.rate_per_key or has_rate, _KEY_RATE),
            "exclusive_keys": (not self.exclusive_keys or not by_turn, _EXCLUSIVE),
        }
        if not self.max_queued_per_key:
            bounds["key_overflow"] = (self.key_overflow == self.KeyOverflow.REJECT, _BOUND)
            bounds["key_limit_counts"] = (
                self.key_limit_counts == self.KeyLimitCounts.QUEUED,
                _BOUND,
            )
        raise_wrong(bounds)

    def _check_choices(self) -> None:
        """Raise ValidationError for an unknown value of `key_overflow` or `key_limit_counts`.

        Otherwise a publish to a full key would meet it.
        """
        checked = {"key_overflow", "key_limit_counts"}
        self.clean_fields({field.name for field in self._meta.fields} - checked)

    def signing_secrets(self) -> list[str]:
        """Return the secrets that sign push deliveries, the newest first.

        The list is empty if deliveries are not signed.
        """
        return (encryption.unseal(self.signing_secrets_sealed) or "").split()

    def set_signing_secret(self) -> str:
        """Set a new secret that signs push deliveries, without saving the row, and return it.

        The previous secret signs as well until the next change, so that receivers can switch over.
        Raise ConfigurationError if the package cryptography is missing.
        """
        if not encryption.is_available():
            raise ConfigurationError(
                "Signing needs the package cryptography: python -m pip install 'pulljobs[push]'"
            )
        secret = signing.new_secret()
        kept = [secret, *self.signing_secrets()[:1]]
        self.signing_secrets_sealed = encryption.seal(" ".join(kept))
        return secret

    @property
    def retries(self) -> int:
        """Number of retries that a job may have: 0 if the retry strategy has no delays."""
        return self.max_retries if self.retry_delays else 0
