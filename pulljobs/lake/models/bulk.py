"""What Spark published: each publish and each micro-batch of a sink once, and what it refused.

Rows are written by `pyspark_pulljobs`, in the transactions that publish.
"""

from django.db import models


class BulkPublish(models.Model):
    """A publish by its id, which makes it happen once; of a sink's micro-batch, by query and batch.

    While it is open, what tasks bring is in a table of its own, `pulljobs_staged_<id>`, that nobody
    reads before the commit.
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
    """Of the checkpoint that a sink's query keeps."""
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
    """Its driver holds an advisory lock: where nobody does it is left behind."""
    driver = models.CharField(max_length=255, db_default="")
    """host:pid of the process that its driver lives with; on that host it is seen to be gone."""
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


class PublishedPart(models.Model):
    """A task of a chunked publish that is committed; who does it again writes nothing."""

    pk = models.CompositePrimaryKey("publish_id", "partition")
    publish = models.ForeignKey(BulkPublish, models.CASCADE, related_name="parts", db_index=False)
    partition = models.IntegerField()
    checksum = models.BigIntegerField()
    """Of its rows, in any order: a task that brings others under this number is told so."""
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
    """A row that is no message, kept by who chose so; written with the publish it was part of."""

    publish = models.ForeignKey(BulkPublish, models.CASCADE, related_name="rejects")
    reason = models.CharField(max_length=50)
    """The class of the error."""
    error = models.TextField()
    row = models.TextField()
    """Its columns but the payload, in JSON."""
    payload = models.BinaryField(null=True)
    rejected_at = models.DateTimeField()

    class Meta:
        db_table = "pulljobs_rejected_row"
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.reason}: {self.error}"


class ReplayedJob(models.Model):
    """Whose message was published again, and as which."""

    message_id = models.BigIntegerField(primary_key=True)
    original_job_id = models.BigIntegerField(db_index=True)
    consumer_id = models.BigIntegerField()
    """That it was published to."""
    publish = models.ForeignKey(BulkPublish, models.CASCADE, related_name="replayed")

    class Meta:
        db_table = "pulljobs_replayed_job"

    def __str__(self) -> str:
        return f"{self.original_job_id} as {self.message_id}"
