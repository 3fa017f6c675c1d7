"""Models of nodes, of their waits for jobs, of HTTP clients, and of the progress of jobs."""

import uuid

from django.db import models

from pulljobs.errors import LONGEST_NOTE


class Node(models.Model):
    """Process that claims jobs or serves the API. Each start has a row of its own."""

    class Kind(models.TextChoices):
        WORKER = "worker"
        API = "api"
        SPARK = "spark"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    name = models.CharField(max_length=255, help_text="host:pid")
    kind = models.CharField(max_length=6, choices=Kind.choices, db_default=Kind.WORKER)
    address = models.CharField(max_length=2000, blank=True, db_default="")
    """Base URL at which clients reach a process that serves the API, else empty."""
    report = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """Report of its last heartbeat: states of its loops, running jobs and circuits."""
    started_at = models.DateTimeField()
    heartbeat_at = models.DateTimeField()
    stopped_at = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return self.name


class PullWaiter(models.Model):
    """Waiter: process that waits for jobs of a consumer. Without any, publishers send nothing."""

    pk = models.CompositePrimaryKey("consumer_id", "node_id")
    consumer_id = models.BigIntegerField()
    node_id = models.UUIDField()
    waiting = models.PositiveIntegerField(default=1, db_default=1)
    """Number of long polls that wait in the process."""
    waiting_until = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_pull_waiter"

    def __str__(self) -> str:
        return f"{self.node_id} waits for {self.consumer_id}"


class HttpClient(models.Model):
    """Client that pulls over HTTP, by the name that it chose, for status pages.

    `pulljobs.storage.clients` bounds the number of rows.
    """

    consumer = models.ForeignKey(
        "pulljobs.Consumer",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    name = models.CharField(max_length=64)
    """Name that the client chose for itself."""
    host = models.CharField(max_length=255)
    """Host name that the client sent, or empty."""
    address = models.CharField(max_length=64)
    """Address of the last request, which may be that of a proxy."""
    agent = models.CharField(max_length=200)
    """User agent with the version of the client, or empty."""
    first_seen_at = models.DateTimeField()
    seen_at = models.DateTimeField()
    """Time of the last request, or up to a heartbeat interval later."""

    class Meta:
        db_table = "pulljobs_http_client"
        verbose_name = "HTTP client"
        default_permissions = ("view",)
        constraints = [
            models.UniqueConstraint(fields=["consumer", "name"], name="pulljobs_http_client_name")
        ]

    def __str__(self) -> str:
        return self.name


class JobProgress(models.Model):
    """Last progress that the handler of a job has reported: `done` of `total`, in any unit."""

    job_id = models.BigIntegerField(primary_key=True)
    done = models.FloatField()
    total = models.FloatField(null=True)
    note = models.CharField(max_length=LONGEST_NOTE, blank=True, default="")
    reported_at = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_progress"
        default_permissions = ()

    def __str__(self) -> str:
        share = f"{self.done:g}" if self.total is None else f"{self.done:g} of {self.total:g}"
        percent = f" ({100 * self.done / self.total:.0f} %)" if self.total else ""
        return f"{share}{percent} {self.note}".rstrip()
