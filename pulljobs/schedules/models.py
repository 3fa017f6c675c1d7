"""Tables of schedules and of the records of their slots.

Only `editing`, `firing` and `backfilling` write their rows, and `history` deletes old records.
"""

from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from pulljobs.schedules.rules import Rule

LONGEST_NAME: Final = 200
"""Maximum length of a name: a client message id has 255 characters for name and slot."""


class Missed(models.TextChoices):
    """Policy for slots that passed while no worker ran or the schedule was paused."""

    SKIP = "skip", _("skip them")
    LATEST = "latest", _("fire the newest")
    ALL = "all", _("fire the newest, up to a bound")


class Overlap(models.TextChoices):
    """Policy for a slot while a job of the schedule's previous message is queued or in flight."""

    ALLOW = "allow", _("fire")
    SKIP = "skip", _("skip the slot")


class SlotReason(models.TextChoices):
    """Reason why a slot fired or was skipped."""

    DUE = "due", _("its time came")
    NOW = "now", _("fired by a user")
    BACKFILL = "backfill", _("fired later by a backfill")
    MISSED = "missed", _("it passed while nothing ran")
    LATE = "late", _("it was later than the grace")
    PAUSED = "paused", _("the schedule was paused")
    OVERLAP = "overlap", _("a job of the previous message was live")
    REFUSED = "refused", _("publishing was refused")
    CHANGED = "changed", _("the rule changed before it fired")


FIRED: Final = (SlotReason.DUE, SlotReason.NOW, SlotReason.BACKFILL)
"""Reasons of slots that fired, which have a message. Slots with other reasons were skipped."""


class Schedule(models.Model):
    """Schedule: its rule, its message, its policies, and the progress of its slots."""

    name = models.CharField(max_length=LONGEST_NAME)
    channel_name = models.CharField(max_length=255)
    """Name of the channel. If it is deleted, publishes are refused until it exists again."""
    cron = models.CharField(max_length=255, blank=True, default="")
    every = models.DurationField(null=True, blank=True)
    timezone = models.CharField(max_length=64, default="UTC")
    starts_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)
    jitter = models.DurationField(default=timedelta)
    payload = models.BinaryField()
    content_type = models.CharField(max_length=255)
    headers = models.JSONField(default=dict)
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001  no key is not an empty key
    priority = models.SmallIntegerField(default=0)
    cost = models.IntegerField(default=1)
    producer = models.ForeignKey("pulljobs.Producer", models.SET_NULL, null=True, related_name="+")
    missed = models.CharField(max_length=6, choices=Missed.choices, default=Missed.LATEST)
    missed_bound = models.PositiveIntegerField(default=100)
    misfire_grace = models.DurationField(null=True, blank=True)
    overlap = models.CharField(max_length=5, choices=Overlap.choices, default=Overlap.ALLOW)
    is_declared = models.BooleanField(default=False)
    """True if the row was created for a declaration in code."""
    paused_at = models.DateTimeField(null=True)
    """Start of the pause. It stays after the pause until firing has decided about its slots."""
    paused_until = models.DateTimeField(null=True)
    """End of the pause. NULL while `paused_at` is set: until the schedule is resumed."""
    earlier_pauses = ArrayField(models.DateTimeField(), null=True)
    """Starts and ends of earlier pauses about whose slots firing has not decided, or NULL."""
    next_slot = models.DateTimeField(null=True)
    """First slot without a record, which fires next. NULL: no slot follows."""
    due_at = models.DateTimeField(null=True)
    """Time from which a schedule loop handles the row. NULL means never."""
    rule_since = models.DateTimeField()
    """Time after which the slots of the present rule begin."""
    last_slot = models.DateTimeField(null=True)
    """Newest slot of the rule that has a record."""
    last_reason = models.CharField(max_length=8, blank=True, default="")
    last_late_seconds = models.FloatField(null=True)
    last_message_id = models.BigIntegerField(null=True)
    failures = models.IntegerField(default=0)
    """Number of times that publishing `next_slot` was refused."""
    error = models.TextField(blank=True, default="")
    """Reason of the last refusal, or empty once a pass or a change was not refused."""
    created_at = models.DateTimeField(db_default=Now())
    changed_at = models.DateTimeField(db_default=Now())

    class Meta:
        permissions = [
            ("pause_schedule", "Can pause schedules and have them go on"),
            ("fire_schedule", "Can fire schedules now and backfill them"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["name"], name="pulljobs_schedule_name"),
        ]
        indexes = [
            models.Index(
                fields=["due_at"],
                condition=models.Q(due_at__isnull=False),
                name="pulljobs_schedule_due",
            ),
        ]
        db_table = "pulljobs_schedule"

    def __str__(self) -> str:
        return self.name

    @cached_property
    def rule(self) -> Rule:
        """Rule in the columns of the row. It was checked when it was written."""
        return Rule(self.cron, self.every, self.timezone, self.starts_at, self.ends_at, self.jitter)

    def is_paused(self, now: datetime) -> bool:
        """Return True if the schedule is in a pause at the time `now`."""
        return self.paused_at is not None and (self.paused_until is None or now < self.paused_until)


class Slot(models.Model):
    """Record that a slot fired or was skipped, and why. A slot has one record at most."""

    pk = models.CompositePrimaryKey("schedule_id", "slot_at")
    schedule = models.ForeignKey(
        Schedule, models.DO_NOTHING, related_name="slots", db_constraint=False, db_index=False
    )
    slot_at = models.DateTimeField()
    recorded_at = models.DateTimeField(db_default=Now())
    late_seconds = models.FloatField()
    """Seconds from the planned time, with jitter, to the time of this record."""
    message_id = models.BigIntegerField(null=True)
    reason = models.CharField(max_length=8, choices=SlotReason.choices)
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row

    class Meta:
        db_table = "pulljobs_slot"
        default_permissions = ("view",)
        constraints = [
            models.CheckConstraint(
                condition=models.Q(message_id__isnull=False, reason__in=FIRED)
                | (models.Q(message_id__isnull=True) & ~models.Q(reason__in=FIRED)),
                name="pulljobs_slot_reason",
            ),
        ]
        indexes = [models.Index(fields=["slot_at"], name="pulljobs_slot_age")]

    def __str__(self) -> str:
        return f"{self.schedule_id} {self.slot_at:%Y-%m-%d %H:%M:%S}"
