"""What was exported to the lake, and which days of it were found equal to ours."""

from django.db import models
from django.db.models import Q


class LakeRun(models.Model):
    """One run of the export: the rows that transactions from `low_xid` to below `high_xid` wrote.

    The windows of one location lie end to end. A run that stays open was cut off; the next one
    ends it first.
    """

    class Kind(models.TextChoices):
        EXPORT = "export"
        REBASE = "rebase"

    class State(models.TextChoices):
        OPEN = "open"
        DONE = "done"

    kind = models.CharField(max_length=6, choices=Kind.choices)
    state = models.CharField(max_length=4, choices=State.choices)
    location = models.CharField(max_length=2000)
    system_identifier = models.BigIntegerField()
    """Of the cluster that counted these transactions: another one counts its own."""
    low_xid = models.BigIntegerField()
    high_xid = models.BigIntegerField()
    options = models.JSONField(default=dict)
    """What of the payloads it took."""
    opened_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    rows = models.JSONField(default=dict)
    """How many, by table of the lake."""
    bytes = models.BigIntegerField(default=0)

    class Meta:
        db_table = "pulljobs_lake_run"
        constraints = [
            models.UniqueConstraint(
                fields=["state"], condition=Q(state="open"), name="pulljobs_lake_run_open"
            ),
            models.CheckConstraint(
                condition=Q(low_xid__lte=models.F("high_xid")), name="pulljobs_lake_run_window"
            ),
        ]
        indexes = [models.Index(fields=["location", "-id"], name="pulljobs_lake_run_last")]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class LakeDay(models.Model):
    """A day of which PostgreSQL and the lake held the same, but for later transactions."""

    location = models.CharField(max_length=2000)
    table = models.CharField(max_length=63)
    """The partitioned table of PostgreSQL."""
    day = models.DateField()
    high_xid = models.BigIntegerField()
    """Rows of this and later transactions were not looked at; 0: none were, it was restored."""
    rows = models.BigIntegerField()
    checksum = models.DecimalField(max_digits=38, decimal_places=0)
    verified_at = models.DateTimeField()
    dropped_at = models.DateTimeField(null=True)
    restored_at = models.DateTimeField(null=True)
    """It is kept for another retention from then on."""

    class Meta:
        db_table = "pulljobs_lake_day"
        constraints = [
            models.UniqueConstraint(
                fields=["location", "table", "day"], name="pulljobs_lake_day_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.table} {self.day}"
