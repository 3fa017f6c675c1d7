"""Keys of consumers: those that run one job at a time, are bounded, or take turns."""

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from pulljobs.models.fields import CurrentTransaction, TransactionIdField


class ExclusiveKey(models.Model):
    """Key of an exclusive consumer, while it has jobs. Changes of its running job lock the row.

    Publishers never lock it, so a publisher whose transaction stays open stops no claim.
    """

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    key = models.CharField(max_length=255)
    holder = models.BigIntegerField(null=True)
    """Job of the key that is in flight or waits for its retry. It may be settled by now."""

    class Meta:
        db_table = "pulljobs_exclusive_key"

    def __str__(self) -> str:
        return self.key


class BoundedKey(models.Model):
    """Key of a consumer that bounds its queue. Publishers of the key lock the row in turn."""

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    key = models.CharField(max_length=255)

    class Meta:
        db_table = "pulljobs_bounded_key"

    def __str__(self) -> str:
        return self.key


class FlowKey(models.Model):
    """Key of a consumer whose claims go by key. The rows with a `turn_at` are the ring.

    A claim serves the keys with the earliest turns and gives them new ones behind all others. The
    row goes with the last job of its key, unless it has something to remember.
    """

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    turn_at = models.DateTimeField(null=True)
    """Time from which the key may be served. NULL: it has no turn."""
    filled_at = models.DateTimeField(null=True)
    """Time at which `tokens` were counted."""
    charged_since = models.DateTimeField(null=True)
    """Time from which claims took tokens. A job that was claimed earlier gives no token back."""
    throttled_until = models.DateTimeField(null=True)
    """End of the pause that a handler asked for."""
    mark_at = models.DateTimeField(null=True)
    """With `mark_id`, the position up to which no job of `mark_priority` waits. NULL: none."""
    mark_id = models.BigIntegerField(db_default=0)
    tokens = models.FloatField(null=True)
    """Tokens at `filled_at`. NULL: the bucket is full."""
    writer = TransactionIdField(db_default=CurrentTransaction())
    """Transaction that wrote the row last.

    A claim uses a row only if its snapshot has this transaction, and so all earlier claims.
    """
    weight = models.IntegerField(db_default=1)
    """Jobs of a turn."""
    owed = models.IntegerField(db_default=0)
    """Jobs that are left of the present turn."""
    turn_rank = models.SmallIntegerField(db_default=0)
    """Highest priority among the waiting jobs; 0 for a fair consumer."""
    mark_priority = models.SmallIntegerField(db_default=0)
    is_full = models.BooleanField(db_default=False)
    """True if the key lost its turn for lack of a slot: the next job that ends gives it a turn."""
    key = models.CharField(max_length=255)
    holders = ArrayField(models.BigIntegerField(), db_default=[])
    """Jobs that were in flight after the last claim. They may have ended by now."""

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
