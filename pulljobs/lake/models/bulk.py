"""Ledger of bulk publishes by Spark: each publish, each micro-batch of a sink, rejected rows.

`pyspark_pulljobs` writes the rows, and their results in the transactions that publish.
"""

from django.db import models


class BulkPublish(models.Model):
    """Bulk publish by Spark, whose `publish_id` lets it happen only once.

    For a micro-batch of a streaming sink, the id is made of the query's id and the batch's number.
    While an atomic publish is open, its rows are in a table of their own, `pulljobs_staged_<id>`,
    which no process reads before the commit.
    """

    class Mode(models.TextChoices):
        ATOMIC = "atomic"
        CHUNKED = "chunked"

    class State(models.TextChoices):
        OPEN = "open"
        ABORTED = "aborted"
        DONE = "done"

    publish_id = models.CharField(max_length=255)
    query_id = models.UUIDField(null=True)
    """Id of the streaming query, from its checkpoint, or NULL if the publish is no micro-batch."""
    batch_id = models.BigIntegerField(null=True)
    channel = models.ForeignKey(
        "pulljobs.Channel", models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )
    only_consumer = models.ForeignKey(
        "pulljobs.Consumer",
        models.DO_NOTHING,
        null=True,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    mode = models.CharField(max_length=7, choices=Mode.choices)
    state = models.CharField(max_length=7, choices=State.choices, db_default=State.OPEN)
    guarded = models.BooleanField(db_default=False)
    """True if Spark's driver holds an advisory lock. With no holder it counts as abandoned."""
    driver = models.CharField(max_length=255, db_default="")
    """Spark's driver, as host:pid of its JVM. Other processes on that host see when it is gone."""
    rows = models.BigIntegerField(db_default=0)
    messages = models.BigIntegerField(db_default=0)
    jobs = models.BigIntegerField(db_default=0)
    duplicates = models.BigIntegerField(db_default=0)
    key_full = models.BigIntegerField(db_default=0)
    rejected = models.BigIntegerField(db_default=0)
    opened_at = models.DateTimeField()
    touched_at = models.DateTimeField()
    settled_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "pulljobs_bulk_publish"
        ordering = ("-id",)
        constraints = [
            models.UniqueConstraint(fields=["publish_id"], name="pulljobs_bulk_publish_id"),
            models.UniqueConstraint(fields=["query_id", "batch_id"], name="pulljobs_bulk_sink"),
        ]

    def __str__(self) -> str:
        return self.publish_id

    @property
    def consumer_path(self) -> str:
        """Path `CHANNEL/CONSUMER` of `only_consumer`, for a publish to a single consumer."""
        return f"{self.channel}/{self.only_consumer}"


class PublishedPart(models.Model):
    """Partition that a publish in mode `chunked` has committed: a repeated task skips its rows."""

    pk = models.CompositePrimaryKey("publish_id", "partition")
    publish = models.ForeignKey(BulkPublish, models.CASCADE, related_name="parts", db_index=False)
    partition = models.IntegerField()
    checksum = models.BigIntegerField()
    """Checksum of the rows in any order. A repeated task with other rows fails."""
    rows = models.BigIntegerField()
    messages = models.BigIntegerField()
    jobs = models.BigIntegerField()
    duplicates = models.BigIntegerField()
    key_full = models.BigIntegerField()
    rejected = models.BigIntegerField()
    published_at = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_published_part"

    def __str__(self) -> str:
        return f"part {self.partition} of {self.publish_id}"


class RejectedRow(models.Model):
    """Row of a DataFrame that its publish refused, written in the transaction of that publish."""

    publish = models.ForeignKey(BulkPublish, models.CASCADE, related_name="rejects")
    reason = models.CharField(max_length=50)
    """Name of the error's class."""
    error = models.TextField()
    row = models.TextField()
    """Columns of the row as a JSON object, with the payload replaced by its size."""
    payload = models.BinaryField(null=True)
    rejected_at = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_rejected_row"
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.reason}: {self.error}"


class ReplayedJob(models.Model):
    """Link from a job of the lake to the message that `pulljobs lake replay` published for it."""

    message_id = models.BigIntegerField(primary_key=True)
    """Id of the new message."""
    original_job_id = models.BigIntegerField(db_index=True)
    consumer_id = models.BigIntegerField()
    """Consumer that the message was published to."""
    publish = models.ForeignKey(BulkPublish, models.CASCADE, related_name="replayed")

    class Meta:
        db_table = "pulljobs_replayed_job"

    def __str__(self) -> str:
        return f"{self.original_job_id} as {self.message_id}"
