"""Models of keys: of exclusive consumers, of bounded queues, and of keys that take turns."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from pulljobs.models.fields import CurrentTransaction, TransactionIdField


class ExclusiveKey(models.Model):
    """Key of an exclusive consumer with queued or running jobs, and the job that holds the key.

    A transaction that changes the holder locks the row. Publishers never lock it, so that a
    publisher whose transaction stays open stops no claim.
    """

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    key = models.CharField(max_length=255)
    holder = models.BigIntegerField(null=True)
    """Id of the job of the key that is in flight or waits for its retry. It may have ended."""

    class Meta:
        db_table = "pulljobs_exclusive_key"

    def __str__(self) -> str:
        return self.key


class BoundedKey(models.Model):
    """Key of a consumer with `max_queued_per_key`. Its row is a lock for publishers of the key.

    So one transaction at a time counts the jobs of the key and adds one.
    """

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    key = models.CharField(max_length=255)

    class Meta:
        db_table = "pulljobs_bounded_key"

    def __str__(self) -> str:
        return self.key


class FlowKey(models.Model):
    """Key of a consumer whose keys take turns, with its turn and the state of its limits.

    A claim serves the keys with the highest `turn_rank`, then the earliest `turn_at`, and gives
    them new turns behind all others. A slot of a key is room for a job in flight. The row is
    deleted with the last job of its key that is not DEAD, unless it has tokens, a throttle or a
    weight to keep.
    """

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    turn_at = models.DateTimeField(null=True)
    """Time from which the key may be served. NULL: it has no turn."""
    filled_at = models.DateTimeField(null=True)
    """Time for which `tokens` is the number of tokens."""
    charged_since = models.DateTimeField(null=True)
    """Time from which claims took tokens. A job claimed earlier returns none when released."""
    throttled_until = models.DateTimeField(null=True)
    """End of a throttle, or NULL."""
    mark_at = models.DateTimeField(null=True)
    """With `mark_id`, the low-water mark of the key's jobs of `mark_priority`. NULL: none."""
    mark_id = models.BigIntegerField(db_default=0)
    tokens = models.FloatField(null=True)
    """Tokens at `filled_at`. NULL: the bucket is full, or keys have no rate."""
    writer = TransactionIdField(db_default=CurrentTransaction())
    """Transaction that wrote the row last.

    A claim uses a row only if its snapshot shows this transaction, and therefore all earlier
    claims.
    """
    weight = models.IntegerField(db_default=1)
    """Number of jobs that a claim takes in one turn of the key."""
    owed = models.IntegerField(db_default=0)
    """Number of jobs that claims may still take in the present turn."""
    turn_rank = models.SmallIntegerField(db_default=0)
    """Highest priority among the key's waiting jobs, or 0 if the consumer has `fair_by_key`."""
    mark_priority = models.SmallIntegerField(db_default=0)
    is_full = models.BooleanField(db_default=False)
    """True if the key lost its turn for lack of a slot: the next job that ends gives it a turn."""
    key = models.CharField(max_length=255)
    holders = ArrayField(models.BigIntegerField(), db_default=[])
    """Ids of the jobs that were in flight after the last claim. They may have ended."""

    class Meta:
        db_table = "pulljobs_flow_key"
        default_permissions = ()
        indexes = [
            models.Index(
                fields=["consumer_id", "-turn_rank", "turn_at", "key"],
                condition=Q(turn_at__isnull=False),
                name="pulljobs_flow_key_turn",
            ),
            models.Index(
                fields=["consumer_id", "key"],
                condition=Q(is_full=True),
                name="pulljobs_flow_key_full",
            ),
        ]

    def __str__(self) -> str:
        return self.key
