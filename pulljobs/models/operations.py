"""Running processes and their waits for jobs."""

import uuid

from django.db import models


class Node(models.Model):
    """Running process that claims or serves jobs, with a row per start."""

    class Kind(models.TextChoices):
        WORKER = "worker"
        API = "api"
        SPARK = "spark"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=255, help_text="host:pid")
    kind = models.CharField(max_length=6, choices=Kind.choices, db_default=Kind.WORKER)
    address = models.CharField(max_length=2000, blank=True, db_default="")
    """Base URL at which clients reach an API process."""
    report = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """Report of its last heartbeat: loops, running jobs, circuits."""
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name


class PullWaiter(models.Model):
    """Process that waits for jobs of a consumer. Publishers wake only processes with such a row."""

    pk = models.CompositePrimaryKey("consumer_id", "node_id")
    consumer_id = models.BigIntegerField()
    node_id = models.UUIDField()
    waiting = models.PositiveIntegerField(default=1, db_default=1)
    """Number of long polls that wait in it."""
    waiting_until = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_pull_waiter"

    def __str__(self) -> str:
        return f"{self.node_id} waits for {self.consumer_id}"
