"""What was said: written once by publishing, never changed."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models

from pulljobs.models.fields import TimeOrderedId, TransactionNumber


class Message(models.Model):
    """Partitioned by id, a day each; so without foreign keys."""

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
    client_message_id = models.CharField(max_length=255, null=True)  # noqa: DJ001  likewise
    content_type = models.CharField(max_length=255)
    headers = models.JSONField(default=dict)
    payload = models.BinaryField()
    published_xid = models.BigIntegerField(db_default=TransactionNumber(), editable=False)
    """The transaction that published it: what an export can watch without losing a late commit."""

    class Meta:
        indexes = [
            models.Index(fields=["channel", "id"], name="pulljobs_message_channel"),
            # Publishing pays next to nothing for it, unlike for one more tree.
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
    """A message to be published at its time, to the consumers of then."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    channel = models.ForeignKey(
        "pulljobs.Channel", models.CASCADE, related_name="+", db_index=False
    )
    producer = models.ForeignKey("pulljobs.Producer", models.SET_NULL, null=True, related_name="+")
    client_message_id = models.CharField(max_length=255)
    priority = models.SmallIntegerField(default=0)
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
    """A client message id that is taken: unique inside the dedupe window, the newest wins."""

    pk = models.CompositePrimaryKey("channel_id", "client_message_id")
    channel_id = models.BigIntegerField()
    client_message_id = models.CharField(max_length=255)
    message_id = models.BigIntegerField()
    published_at = models.DateTimeField(db_index=True)

    def __str__(self) -> str:
        return self.client_message_id
