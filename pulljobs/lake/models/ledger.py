"""Ledger of what the lake has: export runs, and days that were compared with PostgreSQL."""

from django.db import models
from django.db.models import Q


class LakeRun(models.Model):
    """Export run, of the rows of transactions from `low_xid` to below `high_xid`.

    Each run to a location begins where the last one ended. A run that stays open was interrupted,
    and the next call of the export completes it first. A row of kind rebase exported nothing:
    it marks where a database with other transaction numbers replaced the former one.
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
    """Identifier of the PostgreSQL cluster that assigned the transaction numbers."""
    low_xid = models.BigIntegerField()
    high_xid = models.BigIntegerField()
    options = models.JSONField(default=dict)
    """Payload cap in bytes and ids of channels, which say what payloads the run exported.

    A rebase has the number of rows that it renumbered.
    """
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
    """Day of a table that was found equal in the lake, dropped from PostgreSQL, or restored."""

    location = models.CharField(max_length=2000)
    table = models.CharField(max_length=63)
    """Partitioned table of PostgreSQL."""
    day = models.DateField()
    high_xid = models.BigIntegerField()
    """Transaction number below which all rows were compared, or 0 to compare the day again."""
    rows = models.BigIntegerField()
    checksum = models.DecimalField(max_digits=38, decimal_places=0)
    verified_at = models.DateTimeField()
    dropped_at = models.DateTimeField(null=True)
    """Time at which PostgreSQL dropped the partition, because the lake has it."""
    restored_at = models.DateTimeField(null=True)
    """Time at which the partition came back from the lake. It stays for another retention."""

    class Meta:
        db_table = "pulljobs_lake_day"
        constraints = [
            models.UniqueConstraint(
                fields=["location", "table", "day"], name="pulljobs_lake_day_once"
            )
        ]

    def __str__(self) -> str:
        return f"{self.table} {self.day}"
