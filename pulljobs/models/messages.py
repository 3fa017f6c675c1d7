"""Models of messages: published, scheduled, and the client message ids of published ones."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from pulljobs.models.fields import TimeOrderedId, TransactionNumber


class Message(models.Model):
    """Published message, which only the lake changes, to erase or to renumber it.

    Its id begins with the time, and the table has one partition for the ids of each day. No foreign
    key refers to it, so that an old partition can be dropped without a check of other tables.
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    channel = models.ForeignKey(
        "pulljobs.Channel", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    producer = models.ForeignKey(
        "pulljobs.Producer", models.DO_NOTHING, null=True, db_constraint=False, db_index=False
    )
    published_at = models.DateTimeField()
    priority = models.SmallIntegerField(default=0)
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001  no key is not an empty key
    client_message_id = models.CharField(max_length=255, null=True)  # noqa: DJ001  NULL: no id was given
    content_type = models.CharField(max_length=255)
    headers = models.JSONField(default=dict)
    payload = models.BinaryField()
    published_xid = models.BigIntegerField(db_default=TransactionNumber(), editable=False)
    """Transaction that published it. The export reads by it, so that it misses no late commit."""

    class Meta:
        indexes = [
            models.Index(fields=["channel", "id"], name="pulljobs_message_channel"),
            # A BRIN index costs publishes next to nothing, unlike another B-tree.
            BrinIndex(
                fields=["published_xid"],
                name="pulljobs_message_xid",
                autosummarize=True,
                pages_per_range=32,
            ),
        ]

    def __str__(self) -> str:
        return self.client_message_id or str(self.id)


class ScheduledMessage(models.Model):
    """Scheduled message: published at `dispatch_at` to the consumers that the channel has then."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    channel = models.ForeignKey(
        "pulljobs.Channel", models.CASCADE, related_name="+", db_index=False
    )
    producer = models.ForeignKey("pulljobs.Producer", models.SET_NULL, null=True, related_name="+")
    client_message_id = models.CharField(max_length=255)
    priority = models.SmallIntegerField(default=0)
    cost = models.IntegerField(null=True)
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001  no key is not an empty key
    content_type = models.CharField(max_length=255)
    headers = models.JSONField(default=dict)
    payload = models.BinaryField()
    dispatch_at = models.DateTimeField()
    dispatched_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "pulljobs_scheduled_message"
        constraints = [
            models.UniqueConstraint(
                fields=["channel", "client_message_id"], name="pulljobs_scheduled_id"
            )
        ]
        indexes = [
            models.Index(fields=["channel", "id"], name="pulljobs_scheduled_channel"),
            models.Index(
                fields=["dispatch_at"],
                condition=models.Q(dispatched_at__isnull=True),
                name="pulljobs_scheduled_due",
            ),
        ]

    def __str__(self) -> str:
        return self.client_message_id


class Publication(models.Model):
    """Client message id that is taken in a channel, with the newest message that has it.

    Inside the dedupe window, a publish with the same id is a duplicate. After it, a publish
    replaces the row.
    """

    pk = models.CompositePrimaryKey("channel_id", "client_message_id")
    channel_id = models.BigIntegerField()
    client_message_id = models.CharField(max_length=255)
    message_id = models.BigIntegerField()
    published_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.client_message_id
