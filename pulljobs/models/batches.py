"""Counts of batches, which processes without the app `pulljobs.workflows` write, too."""

from django.db import models

from pulljobs.models.fields import TimeOrderedId


class BatchSum(models.Model):
    """Change of the counts of a batch, in the transaction that changes its members.

    A merge adds the rows of a batch up and deletes them. A row means that a process has to look at
    the batch, even if all its counts are zero.
    """

    pk = models.CompositePrimaryKey("batch_id", "id")
    batch_id = models.BigIntegerField()
    id = models.BigIntegerField(db_default=TimeOrderedId())
    members = models.IntegerField(default=0, db_default=0)
    delivered = models.IntegerField(default=0, db_default=0)
    dead = models.IntegerField(default=0, db_default=0)
    redriven = models.IntegerField(default=0, db_default=0)

    class Meta:
        db_table = "pulljobs_batch_sum"
        default_permissions = ()

    def __str__(self) -> str:
        return f"sum of batch {self.batch_id}"
