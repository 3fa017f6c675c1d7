"""Streams: what Spark queries take of consumers, batch by batch."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class Stream(models.Model):
    """One streaming query, known by its name across restarts; its owner alone claims and settles.

    The owner says that it lives by moving `owned_until` on. A new one takes over once that is past.
    """

    name = models.CharField(max_length=255)
    consumer = models.ForeignKey(
        "pulljobs.Consumer",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    owner = models.UUIDField(null=True)
    """The node that runs it, or ran it last."""
    owned_until = models.DateTimeField(null=True)
    acked = models.BigIntegerField(default=0, db_default=0)
    failed = models.BigIntegerField(default=0, db_default=0)
    lost = models.BigIntegerField(default=0, db_default=0)
    """Of all its batches that were acked: most of them are forgotten."""

    class Meta:
        db_table = "pulljobs_stream"
        constraints = [models.UniqueConstraint(fields=["name"], name="pulljobs_stream_name")]

    def __str__(self) -> str:
        return self.name


class StreamBatch(models.Model):
    """What one claim of a stream took: made in the claim's transaction, so it is never forgotten.

    A batch is a lease: its jobs are held while their `lease` is this token. The lease row may go
    (reaped, settled); what the batch held stays here until it is acked, so that a replay finds it.
    """

    class State(models.TextChoices):
        OPEN = "open"
        RELEASED = "released"
        """Given back by hand; a replay takes what nobody else took."""
        ACKED = "acked"

    stream = models.ForeignKey(Stream, models.CASCADE, related_name="batches", db_index=False)
    seq = models.BigIntegerField()
    state = models.CharField(max_length=8, choices=State.choices)
    lease_token = models.UUIDField()
    job_ids = ArrayField(models.BigIntegerField())
    """In the order claimed; empty once acked."""
    jobs = models.IntegerField()
    acked = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    """Retried or rejected one by one, while the batch ran."""
    lost = models.IntegerField(default=0, db_default=0)
    """Not held any more when the batch was acked: another has them, or had."""
    claimed_at = models.DateTimeField()
    acked_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "pulljobs_stream_batch"
        constraints = [
            models.UniqueConstraint(fields=["stream", "seq"], name="pulljobs_stream_batch_seq"),
            models.UniqueConstraint(fields=["lease_token"], name="pulljobs_stream_batch_token"),
        ]

    def __str__(self) -> str:
        return f"{self.stream_id}:{self.seq}"
