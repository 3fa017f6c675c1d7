"""Audit trail: a record of each action of an operator. Its rows are never deleted."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.models.fields import TimeOrderedId
from pulljobs.states import Event


class AuditEntry(models.Model):
    """Action of an operator: its request, and its progress if it changes many jobs.

    Such an action proceeds in batches. The transaction of each updates the columns of the progress.
    """

    class Act(models.TextChoices):
        REDRIVE = Event.REDRIVE.value
        RELEASE = Event.RELEASE.value, "Requeue"
        KILL = Event.KILL.value
        RESCHEDULE = Event.RESCHEDULE.value
        DELETE = Event.DELETE.value
        PAUSE = "pause"
        RESUME = "resume"
        ROTATE = "rotate token"
        CREATE = "create"
        UPDATE = "update"
        FIRE = "fire"
        BACKFILL = "backfill"
        SIGNAL = "signal"

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    by = models.CharField(max_length=255)
    act = models.CharField(max_length=12, choices=Act.choices)
    asked_at = models.DateTimeField(db_default=Now())
    subject = models.TextField()
    """Text for people: what the action was applied to, as in "of all consumers"."""
    selection = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """Selected jobs, as the fields of `storage.selecting.Selection`."""
    at = models.DateTimeField(null=True)
    """Time at which rescheduled jobs are due, or at which a pause ends."""
    expected = models.IntegerField(null=True)
    """Number of jobs in the preview that the operator confirmed."""
    is_more = models.BooleanField(default=False, db_default=False)
    """True if the preview warned that there may be more jobs."""
    cursor = models.BigIntegerField(default=0, db_default=0)
    """Highest job id that was processed."""
    last = models.BigIntegerField(default=0, db_default=0)
    """Highest job id at the time of the request: jobs created later are not changed."""
    done = models.IntegerField(default=0, db_default=0)
    refused = models.IntegerField(default=0, db_default=0)
    finished_at = models.DateTimeField(null=True)
    stopped_by = models.CharField(max_length=255, blank=True, default="", db_default="")
    """User who stopped it before it was finished, or empty if it was not stopped."""

    class Meta:
        db_table = "pulljobs_audit_entry"
        verbose_name_plural = "audit trail"
        default_permissions = ("view",)
        indexes = [
            models.Index(
                fields=["id"],
                condition=Q(finished_at__isnull=True),
                name="pulljobs_audit_unfinished",
            )
        ]

    def __str__(self) -> str:
        return ids.encode(self.id)


class AuditedBatch(models.Model):
    """Group of jobs that an action took in one transaction: those changed, and those refused.

    The row is written in the transaction that changes the jobs.
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    entry = models.ForeignKey(AuditEntry, models.DO_NOTHING, related_name="batches")
    at = models.DateTimeField(db_default=Now())
    done = ArrayField(models.BigIntegerField())
    refused = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """Reasons by job id, as text, for the jobs that were not changed."""

    class Meta:
        db_table = "pulljobs_audited_batch"
        default_permissions = ()
        indexes = [GinIndex(fields=["done"], name="pulljobs_audited_job", fastupdate=False)]

    def __str__(self) -> str:
        return ids.encode(self.id)
