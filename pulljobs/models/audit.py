"""What operators did: who, when, what, to which and to how many. Nothing here is ever deleted."""

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.models.fields import TimeOrderedId
from pulljobs.states import Event


class AuditEntry(models.Model):
    """One act of an operator. One upon jobs goes on, batch by batch, until all are done with.

    What was asked stays as it is; only how far it is changes, with each batch and with its commit.
    """

    class Act(models.TextChoices):
        REDRIVE = Event.REDRIVE.value
        RELEASE = Event.RELEASE.value, "requeue"
        KILL = Event.KILL.value
        RESCHEDULE = Event.RESCHEDULE.value
        DELETE = Event.DELETE.value
        PAUSE = "pause"
        RESUME = "resume"
        ROTATE = "rotate token"

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    by = models.CharField(max_length=255)
    act = models.CharField(max_length=12, choices=Act.choices)
    asked_at = models.DateTimeField(db_default=Now())
    upon = models.TextField()
    """In words: what it was done to."""
    selection = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """The jobs it is for, as `storage.selecting` has it."""
    at = models.DateTimeField(null=True)
    """When jobs are to be due, or until when it is paused."""
    expected = models.IntegerField(null=True)
    """How many jobs the operator was told of before."""
    is_more = models.BooleanField(default=False, db_default=False)
    """He was told that there may be more."""
    cursor = models.BigIntegerField(default=0, db_default=0)
    """Jobs up to this id are done with."""
    last = models.BigIntegerField(default=0, db_default=0)
    """The highest id it may come to: jobs that are made later are none of its business."""
    done = models.IntegerField(default=0, db_default=0)
    refused = models.IntegerField(default=0, db_default=0)
    finished_at = models.DateTimeField(null=True)
    stopped_by = models.CharField(max_length=255, blank=True, default="", db_default="")
    """Who stopped it before it came to its end."""

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
    """What became of each job of one batch; written in the transaction that changed them."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    entry = models.ForeignKey(AuditEntry, models.DO_NOTHING, related_name="batches")
    at = models.DateTimeField(db_default=Now())
    done = ArrayField(models.BigIntegerField())
    refused = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    """By the id of a job that was left alone, as text: why."""

    class Meta:
        db_table = "pulljobs_audited_batch"
        default_permissions = ()
        indexes = [GinIndex(fields=["done"], name="pulljobs_audited_job", fastupdate=False)]

    def __str__(self) -> str:
        return ids.encode(self.id)
