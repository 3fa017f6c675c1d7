"""Batches and the ids of their members."""

from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.models.fields import TimeOrderedId

LONGEST_NAME: Final = 200


class Batch(models.Model):
    """Set of jobs, its members, that calls back when all of them have ended.

    The counts are as of the last merge. Rows of `pulljobs_batch_sum` have the changes since.
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    name = models.CharField(max_length=LONGEST_NAME)
    parent_id = models.BigIntegerField(null=True)
    """Batch of which this batch is one member."""
    run_id = models.BigIntegerField(null=True)
    """Run of a workflow that becomes due when the batch completes."""
    callbacks = models.JSONField(default=list)
    """Messages that a completion publishes. See `pulljobs.workflows.batches.callbacks`."""
    members = models.BigIntegerField(default=0)
    delivered = models.BigIntegerField(default=0)
    dead = models.BigIntegerField(default=0)
    redriven = models.BigIntegerField(default=0)
    """Redrives of members, all rounds together."""
    redriven_before = models.BigIntegerField(default=0)
    """Value of `redriven` when the batch last completed or began a round."""
    round = models.IntegerField(default=1)
    created_at = models.DateTimeField(db_default=Now())
    closed_at = models.DateTimeField(null=True)
    cancelled_at = models.DateTimeField(null=True)
    completed_at = models.DateTimeField(null=True)
    """End of the present round, or NULL while it goes on."""
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row
    """Reason why a callback was refused, or NULL once it is published."""

    class Meta:
        db_table = "pulljobs_batch"
        verbose_name = "batch"
        verbose_name_plural = "batches"
        default_permissions = ("add", "change", "view")
        permissions = [
            ("cancel_batch", "Can cancel batches"),
            ("redrive_batch", "Can redrive the dead members of batches"),
        ]
        indexes = [
            models.Index(
                fields=["parent_id", "id"],
                condition=models.Q(parent_id__isnull=False),
                name="pulljobs_batch_parent",
            ),
            models.Index(
                fields=["run_id"],
                condition=models.Q(run_id__isnull=False),
                name="pulljobs_batch_run",
            ),
            models.Index(fields=["name", "id"], name="pulljobs_batch_name"),
            models.Index(
                fields=["id"],
                condition=models.Q(completed_at__isnull=True),
                name="pulljobs_batch_open",
            ),
            models.Index(
                fields=["completed_at"],
                condition=models.Q(completed_at__isnull=False),
                name="pulljobs_batch_ended",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} {ids.encode(self.id)}"


class BatchPart(models.Model):
    """Job ids of one publish into a batch, or of up to 1000 messages of a bulk publish."""

    pk = models.CompositePrimaryKey("batch_id", "id")
    batch_id = models.BigIntegerField()
    id = models.BigIntegerField(db_default=TimeOrderedId())
    job_ids = ArrayField(models.BigIntegerField())

    class Meta:
        db_table = "pulljobs_batch_part"
        default_permissions = ()

    def __str__(self) -> str:
        return f"part {self.id} of {ids.encode(self.batch_id)}"
