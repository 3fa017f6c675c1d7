"""Streams: jobs that queries of Spark claim from consumers, batch by batch."""

from django.contrib.postgres.fields import ArrayField
from django.db import models


class Stream(models.Model):
    """Streaming query, by a name that lasts across restarts. One node at a time is its owner."""

    name = models.CharField(max_length=255)
    consumer = models.ForeignKey(
        "pulljobs.Consumer",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    owner = models.UUIDField(null=True)
    """Id of the node that runs the query, or ran it last."""
    owned_until = models.DateTimeField(null=True)
    acked = models.BigIntegerField(default=0, db_default=0)
    """Sum of the delivered jobs of all acked batches, most of whose rows are deleted by now."""
    failed = models.BigIntegerField(default=0, db_default=0)
    """Sum of the jobs that a handler retried, rejected or released while their batch ran."""
    lost = models.BigIntegerField(default=0, db_default=0)
    """Sum of the other jobs that their batch did not hold any more when it was acked."""

    class Meta:
        db_table = "pulljobs_stream"
        constraints = [models.UniqueConstraint(fields=["name"], name="pulljobs_stream_name")]

    def __str__(self) -> str:
        return self.name


class StreamBatch(models.Model):
    """Jobs of one claim of a stream, recorded in the transaction of the claim.

    Its jobs are leased while their `lease_token` is that of the batch. The row of the lease is
    deleted once it holds no job. The job ids stay until the batch is acked, so that Spark can
    repeat the batch after a crash.
    """

    class State(models.TextChoices):
        OPEN = "open"
        RELEASED = "released"
        """Released after its query ended. A batch that Spark repeats gets the jobs still queued."""
        ACKED = "acked"

    stream = models.ForeignKey(Stream, models.CASCADE, related_name="batches", db_index=False)
    seq = models.BigIntegerField()
    state = models.CharField(max_length=8, choices=State.choices)
    lease_token = models.UUIDField()
    job_ids = ArrayField(models.BigIntegerField())
    """Ids in the order of the claim, or none once the batch is acked."""
    jobs = models.IntegerField()
    acked = models.IntegerField(default=0, db_default=0)
    failed = models.IntegerField(default=0, db_default=0)
    """Jobs that a handler retried, rejected or released while the batch ran."""
    lost = models.IntegerField(default=0, db_default=0)
    """Other jobs that the batch did not hold any more when it was acked."""
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
