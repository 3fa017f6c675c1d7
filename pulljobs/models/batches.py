"""Counts of the members of batches. They are in the core, because every process settles members."""

from django.db import models

from pulljobs.models.fields import TimeOrderedId


class BatchSum(models.Model):
    """Change of the counts of a batch, inserted in the transaction that changes its members.

    So these transactions do not wait for each other. The app `pulljobs.workflows` adds up the rows
    of a batch and deletes them. A row, even with zeros, makes it check if the batch is complete.
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
