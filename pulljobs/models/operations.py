"""Who is at work, and who waits."""

import uuid

from django.db import models


class Node(models.Model):
    """One running process that claims: a row per boot."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=255, help_text="host:pid")
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name


class PullWaiter(models.Model):
    """A process that waits for jobs of a consumer; publishers wake nobody else."""

    pk = models.CompositePrimaryKey("consumer_id", "node_id")
    consumer_id = models.BigIntegerField()
    node_id = models.UUIDField()
    waiting_until = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_pull_waiter"

    def __str__(self) -> str:
        return f"{self.node_id} waits for {self.consumer_id}"
