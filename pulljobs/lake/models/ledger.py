"""Ledger of the lake: runs of the export, and days that were compared with PostgreSQL."""

from django.db import models
from django.db.models import Q


class LakeRun(models.Model):
    """Run of the export: the rows written by transactions from `low_xid` to below `high_xid`.

    The windows of a location are adjacent. A run that stays open was interrupted. The next run ends
    it first.
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
    """PostgreSQL cluster that assigned the transaction numbers."""
    low_xid = models.BigIntegerField()
    high_xid = models.BigIntegerField()
    options = models.JSONField(default=dict)
    """Options of the export, which say what payloads it took."""
    opened_at = models.DateTimeField()
    done_at = models.DateTimeField(null=True)
    rows = models.JSONField(default=dict)
    """Number of rows by table of the lake."""
    bytes = models.BigIntegerField(default=0)

    class Meta:
        db_table = "pulljobs_lake_run"
        constraints = [
            models.UniqueConstraint(
                fields=["location"], condition=Q(state="open"), name="pulljobs_lake_run_open"
            ),
            models.CheckConstraint(
                condition=Q(low_xid__lte=models.F("high_xid")), name="pulljobs_lake_run_window"
            ),
        ]
        indexes = [models.Index(fields=["location", "-id"], name="pulljobs_lake_run_last")]

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"


class LakeDay(models.Model):
    """Day whose rows of earlier transactions are equal in PostgreSQL and in the lake."""

    location = models.CharField(max_length=2000)
    table = models.CharField(max_length=63)
    """Partitioned table of PostgreSQL."""
    day = models.DateField()
    high_xid = models.BigIntegerField()
    """First transaction whose rows were not compared. After a restore it is 0: none were."""
    rows = models.BigIntegerField()
    checksum = models.DecimalField(max_digits=38, decimal_places=0)
    verified_at = models.DateTimeField()
    dropped_at = models.DateTimeField(null=True)
    restored_at = models.DateTimeField(null=True)
    """Start of another retention period."""

    class Meta:
        db_table = "pulljobs_lake_day"
        constraints = [
            models.UniqueConstraint(
                fields=["location", "table", "day"], name="pulljobs_lake_day_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.table} {self.day}"
