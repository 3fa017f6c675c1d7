"""Archive of the settlements of jobs, and the claims before them that did not settle."""

from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Q

from pulljobs import ids
from pulljobs.models.fields import TimeOrderedId, TransactionNumber
from pulljobs.models.jobs import REASONS, STATES, Lease
from pulljobs.states import State


class Attempt(models.Model):
    """Ended claim of a job, kept if it did not settle the job, or was renewed.

    The archive has only the settlements.
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    job_id = models.BigIntegerField()
    lease_token = models.UUIDField()
    node_id = models.UUIDField(null=True)
    via = models.CharField(max_length=8, choices=Lease.Via.choices)
    claimed_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    """Start of the run, or NULL if none started or the holder does not report it."""
    ended_at = models.DateTimeField()
    run_seconds = models.FloatField(null=True)
    """Seconds that the handler ran."""
    leased_until = models.DateTimeField()
    """Time at which the lease was to end when the claim ended."""
    renewals = models.IntegerField()
    event = models.CharField(max_length=10)
    """Value of `states.Event` that ended the claim."""
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["job_id", "id"], name="pulljobs_attempt_job")]

    def __str__(self) -> str:
        return f"{ids.encode(self.job_id)}: {self.event}"


class ArchivedJob(models.Model):
    """Settlement of a job, which only the lake changes, to erase or to renumber it.

    The partitions are of days, by the time in `id`. Rows are deleted by dropping a partition.
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    job_id = models.BigIntegerField(db_index=True)
    message = models.ForeignKey("pulljobs.Message", models.DO_NOTHING, db_constraint=False)
    consumer = models.ForeignKey(
        "pulljobs.Consumer", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    created_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    """Start of the run, or NULL if none started or the holder does not report it."""
    settled_at = models.DateTimeField()
    run_seconds = models.FloatField(null=True)
    """Seconds that the handler ran. It is NULL where `started_at` is, and if the run went on."""
    settled_xid = models.BigIntegerField(db_default=TransactionNumber(), editable=False)
    """Transaction that settled it. The export reads by it, so that it misses no late commit."""
    retry_count = models.IntegerField()
    deliveries = models.IntegerField()
    node_id = models.UUIDField(null=True)
    lease_token = models.UUIDField(null=True)
    state = models.CharField(max_length=9, choices=STATES)
    reason = models.CharField(max_length=20, null=True, choices=REASONS)  # noqa: DJ001  NULL unless DEAD
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row
    result = models.JSONField(null=True)

    class Meta:
        db_table = "pulljobs_archived_job"
        indexes = [
            # A BRIN index costs settlements next to nothing.
            BrinIndex(
                fields=["settled_xid"],
                name="pulljobs_archived_xid",
                autosummarize=True,
                pages_per_range=32,
            ),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(state=State.DELIVERED.value, reason=None)
                | Q(state=State.DEAD.value, reason__isnull=False),
                name="pulljobs_archived_state",
            ),
        ]

    def __str__(self) -> str:
        return ids.encode(self.job_id)
