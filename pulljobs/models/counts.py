"""Counts of settlements by minute, hour and day, and the position up to which they are counted."""

from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models

ALL_CONSUMERS: Final = 0
"""`consumer_id` of the sums over all consumers."""


class CountPeriod(models.TextChoices):
    """Period of a count. Minutes are kept for 3 hours, hours for 9 days, days for 400 days."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"


class SettlementCount(models.Model):
    """Number of settlements of a consumer, or of all, in one minute, hour or day of UTC.

    Each settlement is counted in all three whose counts are kept for its age. Wait and run times
    are histograms: `_buckets` has their buckets, and `_jobs` the number of settlements in each. See
    `pulljobs.engine.histograms`.
    """

    pk = models.CompositePrimaryKey("period", "consumer_id", "starts_at")
    period = models.CharField(max_length=6, choices=CountPeriod.choices)
    consumer_id = models.BigIntegerField()
    starts_at = models.DateTimeField()
    delivered = models.BigIntegerField()
    dead = models.BigIntegerField()
    retries = models.BigIntegerField()
    wait_buckets = ArrayField(models.SmallIntegerField())
    wait_jobs = ArrayField(models.BigIntegerField())
    run_buckets = ArrayField(models.SmallIntegerField())
    run_jobs = ArrayField(models.BigIntegerField())

    class Meta:
        db_table = "pulljobs_settlement_count"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.period} of {self.starts_at:%Y-%m-%d %H:%M}"


class CountProgress(models.Model):
    """Progress of counting settlements, in a single row that a process locks while it counts."""

    id = models.SmallIntegerField(primary_key=True)
    snapshot = models.TextField(null=True)  # noqa: DJ001  NULL: the whole archive is counted next
    """Value of `pg_snapshot`. Settlements that it does not show are not counted."""
    counted_at = models.DateTimeField()
    open_from = models.DateTimeField()
    """Time before which no transaction began whose settlements the snapshot does not show."""
    counted_from = models.DateTimeField()
    """Time from which counts are complete."""
    newest_dead = models.BigIntegerField(default=0)
    """Highest id of a job that died. Only jobs up to it can have been redriven."""

    class Meta:
        db_table = "pulljobs_count_progress"
        default_permissions = ()

    def __str__(self) -> str:
        return f"counted at {self.counted_at:%Y-%m-%d %H:%M:%S}"
