"""State of the limits of consumers. Only claims and releases write it."""

from django.db import models


class FlowBucket(models.Model):
    """Token bucket of a consumer with a rate. A consumer without a row has a full bucket.

    Claims and releases lock the row. Its columns are not those of the consumer, because every
    claim and publish reads that table.
    """

    consumer_id = models.BigIntegerField(primary_key=True)
    tokens = models.FloatField()
    """Tokens at `filled_at`. Above the burst they do not count."""
    filled_at = models.DateTimeField()
    per_second = models.FloatField()
    """Rate of the consumer when a claim wrote the row."""
    charged_since = models.DateTimeField()
    """Time from which claims took tokens. A job that was claimed earlier gives no token back."""

    class Meta:
        db_table = "pulljobs_flow_bucket"
        default_permissions = ()

    def __str__(self) -> str:
        return f"bucket of {self.consumer_id}"
