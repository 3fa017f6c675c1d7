"""Rollups: settlements counted from the lake by `pulljobs lake rollup`, for charts.

Times are UTC. Each rollup counts the settlements of one consumer in an hour, day or month. Those of
days and months are merged from the hours, and their percentiles from sketches, which are small
summaries of a distribution that can be merged.
"""

from calendar import monthrange
from datetime import datetime
from typing import Final

from django.db import models

from pulljobs.states import Reason


class Period(models.TextChoices):
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


MEASURES: Final = ("wait", "run", "total")
"""Durations in seconds: from creation to claim, run time, and from creation to settlement.

Only workers report run times. The wait is measured for jobs that were settled by their first
delivery only, because for other jobs it would include the delays of retries.
"""
QUANTILES: Final = (50, 95, 99)


def seconds_of(period: str, starts_at: datetime) -> int:
    if period == Period.HOUR:
        return 3600
    days = 1 if period == Period.DAY else monthrange(starts_at.year, starts_at.month)[1]
    return days * 86_400


class RollupRun(models.Model):
    """Run of `lake rollup` over new rows of the lake, written in the transaction of its rollups."""

    location = models.CharField(max_length=2000)
    """Location of the lake."""
    archive_run = models.BigIntegerField()
    """Last export run whose settlements are counted."""
    messages_run = models.BigIntegerField()
    """Last export run whose messages are counted."""
    known_until = models.DateTimeField()
    """All settlements before this time are counted, if their transactions had ended."""
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    settlements = models.BigIntegerField()
    """Settlements in the hours that the run counted."""
    hours = models.PositiveIntegerField()

    class Meta:
        db_table = "pulljobs_rollup_run"
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"run {self.pk}"


class Rollup(models.Model):
    """Counts of one consumer in one hour, day or month."""

    period = models.CharField(max_length=5, choices=Period.choices)
    starts_at = models.DateTimeField()
    channel = models.ForeignKey(
        "pulljobs.Channel",
        models.DO_NOTHING,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    """NULL: the row of the consumer was deleted before the count."""
    consumer = models.ForeignKey(
        "pulljobs.Consumer",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    published = models.BigIntegerField(default=0)
    """Messages published to the consumer, whether their jobs are settled or not."""
    delivered = models.BigIntegerField(default=0)
    dead = models.BigIntegerField(default=0)
    dead_by_reason = models.JSONField(default=dict)
    """Counts by the reasons of `states.Reason`."""
    retries = models.BigIntegerField(default=0)
    redeliveries = models.BigIntegerField(default=0)
    """Deliveries beyond the first of each job."""
    duplicates = models.BigIntegerField(default=0)
    """Jobs that were claimed more than once, so their work may have been done twice."""
    settled_again = models.BigIntegerField(default=0)
    """Settlements of jobs that had been DEAD, then redriven or revived."""
    run_seconds = models.FloatField(default=0.0)
    """Sum of the run times."""
    first_settled_at = models.DateTimeField(null=True)
    last_settled_at = models.DateTimeField(null=True)
    slowest_job = models.BigIntegerField(null=True)
    slowest_seconds = models.FloatField(null=True)
    """Run time of the slowest job."""

    wait_p50 = models.FloatField(null=True)
    wait_p95 = models.FloatField(null=True)
    wait_p99 = models.FloatField(null=True)
    run_p50 = models.FloatField(null=True)
    run_p95 = models.FloatField(null=True)
    run_p99 = models.FloatField(null=True)
    total_p50 = models.FloatField(null=True)
    total_p95 = models.FloatField(null=True)
    total_p99 = models.FloatField(null=True)
    wait_sketch = models.BinaryField(null=True)
    """KLL sketches of doubles, as Apache DataSketches writes them."""
    run_sketch = models.BinaryField(null=True)
    total_sketch = models.BinaryField(null=True)
    keys_sketch = models.BinaryField(null=True)
    """Sketch of the frequent items among the keys."""

    class Meta:
        db_table = "pulljobs_rollup"
        constraints = [
            models.UniqueConstraint(
                fields=["period", "starts_at", "consumer"], name="pulljobs_rollup_period"
            )
        ]
        indexes = [
            models.Index(
                fields=["consumer", "period", "starts_at"], name="pulljobs_rollup_consumer"
            )
        ]

    def __str__(self) -> str:
        return f"{self.period} of {self.starts_at:%Y-%m-%d %H:%M}"

    @property
    def throughput(self) -> float:
        """Deliveries a second, averaged over the whole period."""
        return self.delivered / seconds_of(self.period, self.starts_at)


class HotKey(models.Model):
    """Key of many messages of the rollup's channel, whose number is estimated from a sketch."""

    rollup = models.ForeignKey(Rollup, models.CASCADE, related_name="hot_keys")
    rank = models.PositiveSmallIntegerField()
    key = models.CharField(max_length=255)
    jobs = models.BigIntegerField()

    class Meta:
        db_table = "pulljobs_hot_key"
        ordering = ("rank",)

    def __str__(self) -> str:
        return self.key


class ErrorFingerprint(models.Model):
    """Group of errors of dead jobs that differ only in numbers, ids and quoted names."""

    rollup = models.ForeignKey(Rollup, models.CASCADE, related_name="errors")
    fingerprint = models.CharField(max_length=32, db_index=True)
    """Equal for the same error in every period and consumer."""
    reason = models.CharField(max_length=20, choices=[(item.value, item.value) for item in Reason])
    jobs = models.BigIntegerField()
    sample = models.TextField()
    """Beginning of one of these errors."""
    sample_job = models.BigIntegerField()

    class Meta:
        db_table = "pulljobs_error_fingerprint"
        ordering = ("-jobs", "fingerprint")

    def __str__(self) -> str:
        return self.sample.partition("\n")[0]


class NodeCost(models.Model):
    """Jobs of a rollup that one node ran, and its run time for them in seconds."""

    rollup = models.ForeignKey(Rollup, models.CASCADE, related_name="nodes")
    node_id = models.UUIDField(null=True)
    """NULL: no node held the jobs at their end, but an HTTP client or, in the queue, nothing."""
    jobs = models.BigIntegerField()
    dead = models.BigIntegerField()
    run_seconds = models.FloatField()

    class Meta:
        db_table = "pulljobs_node_cost"
        ordering = ("-run_seconds",)

    def __str__(self) -> str:
        return str(self.node_id)
