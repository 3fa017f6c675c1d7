"""Jobs, the leases that hold them, and the archive that remembers them."""

import uuid
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import BrinIndex
from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.functions import Cast
from django.db.models.signals import pre_delete
from django.dispatch import receiver

from pulljobs import ids
from pulljobs.models.fields import CurrentTransaction, TimeOrderedId, Xid8Field
from pulljobs.states import Reason, State

STATES = [(state.value, state.value) for state in State]
REASONS = [(reason.value, reason.value) for reason in Reason]


def _state() -> Case:
    """What the state of a job must be, by its other columns."""
    alive = Case(
        When(lease_token=None, then=Value(State.QUEUED.value)), default=Value(State.INFLIGHT.value)
    )
    return Case(
        When(reason=None, then=alive),
        When(available_at=None, lease_token=None, then=Value(State.DEAD.value)),
        default=Value("impossible"),  # longer than the column takes
    )


class Job(models.Model):
    """The duty to deliver one message to one consumer, until it is delivered.

    Columns stand in the order that wastes no padding. What a claim writes (state, lease,
    deliveries, first_claimed_at) is in no index and no index predicate, so that claiming stays a
    HOT update: keep it so.
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    consumer = models.ForeignKey(
        "pulljobs.Consumer", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    message = models.ForeignKey(
        "pulljobs.Message", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    available_at = models.DateTimeField(null=True)
    """When it may be claimed; NULL: not at all (DEAD, or waiting behind its key)."""
    first_claimed_at = models.DateTimeField(null=True)
    incremental_timeout = models.DurationField(null=True)
    retry_count = models.IntegerField(default=0)
    deliveries = models.IntegerField(default=0)
    priority = models.SmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    """The token of the claim that holds it."""
    state = models.CharField(max_length=9, choices=STATES)
    reason = models.CharField(max_length=20, null=True, choices=REASONS)  # noqa: DJ001  NULL unless DEAD
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001  no key is not an empty key
    """The message's, where its consumer had a use for keys when it was published."""
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row
    """What its last failure said."""
    suspect = models.BooleanField(default=False, db_default=False)
    """It ran in a process that died, or blocked the event loop: it runs alone the next time."""

    class Meta:
        permissions = [
            ("redrive_job", "Can queue dead jobs again"),
            ("requeue_job", "Can take jobs from who holds them"),
            ("kill_job", "Can end jobs that wait or run"),
            ("reschedule_job", "Can change when jobs are due"),
        ]
        indexes = [
            models.Index(
                fields=["consumer", "-priority", "available_at", "id"],
                # Always true. Without it a plan made while the table is empty, where all indexes
                # cost the same, may use this one to find ids: that reads the whole of it.
                condition=Q(consumer__isnull=False),
                name="pulljobs_job_claim",
            ),
            models.Index(
                fields=["consumer", "id"],
                condition=Q(reason__isnull=False),  # not on the state, which claims write
                name="pulljobs_job_dead",
            ),
            models.Index(
                fields=["consumer", "key", "id"],
                condition=Q(key__isnull=False, reason__isnull=True),
                name="pulljobs_job_key",
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["message", "consumer"], name="pulljobs_job_fan_out"),
            # One, and short: every statement that writes jobs has the server parse it anew, which
            # takes longer than to run it.
            models.CheckConstraint(
                condition=Q(state=_state(), retry_count__gte=0, deliveries__gte=0),
                name="pulljobs_job_state",
            ),
        ]

    def __str__(self) -> str:
        return ids.encode(self.id)


@receiver(pre_delete, sender="pulljobs.Consumer")
def _keep_while_it_has_jobs(instance: models.Model, using: str, **kwargs: Any) -> None:
    """As a foreign key with PROTECT would; the jobs have none, for its price in every publish."""
    held = Job.objects.using(using).filter(consumer_id=instance.pk)[:1]
    if held:
        raise models.ProtectedError(
            f"Consumer {instance} has jobs, which nobody could do, or see, any more. Delete it in "
            "the admin, or by pulljobs.registering.delete_consumer once it has no live ones: its "
            "row is kept for them and their history.",
            set(held),
        )


class ExclusiveKey(models.Model):
    """A key of an exclusive consumer while it has jobs: who changes what runs of it locks the row.

    Publishers never do, so one whose transaction stays open stops nobody.
    """

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    key = models.CharField(max_length=255)
    holder = models.BigIntegerField(null=True)
    """The job that is in flight, or waits for its retry; one that is settled holds no more."""

    class Meta:
        db_table = "pulljobs_exclusive_key"

    def __str__(self) -> str:
        return self.key


class BoundedKey(models.Model):
    """A key of a consumer that bounds its queue: publishers of it take turns at this row."""

    pk = models.CompositePrimaryKey("consumer_id", "key")
    consumer_id = models.BigIntegerField()
    key = models.CharField(max_length=255)

    class Meta:
        db_table = "pulljobs_bounded_key"

    def __str__(self) -> str:
        return self.key


class Lease(models.Model):
    """One claim: renewing, expiring and the death of a node touch this row, not its jobs.

    A job is held while its `lease` is this token; ids of jobs that were settled stay in `job_ids`
    until the row goes. The jobs renewed apart from the rest of their claim get a row of their own
    with the same token.
    """

    class Via(models.TextChoices):
        """By which way the jobs were taken; a job POST without a token reaches only its own."""

        WORKER = "worker"
        POST = "post"
        PULL = "pull"
        PUSH = "push"
        SPARK = "spark"

    lease_token = models.UUIDField(default=uuid.uuid4, db_index=True)
    consumer = models.ForeignKey(
        "pulljobs.Consumer",
        models.DO_NOTHING,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    node_id = models.UUIDField(null=True)
    via = models.CharField(max_length=8, choices=Via.choices)
    claimed_at = models.DateTimeField()
    leased_until = models.DateTimeField(db_index=True)
    hard_end = models.DateTimeField()
    job_ids = ArrayField(models.BigIntegerField())
    running_ids = ArrayField(models.BigIntegerField(), null=True)
    """The jobs that ran at the last renewal: suspects, if their host is lost.

    Where none is named it may be that a repeat of its request was told of it.
    """
    request_id = models.CharField(max_length=255, null=True)  # noqa: DJ001  few claims have one
    renewals = models.IntegerField(default=0, db_default=0)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["consumer", "request_id"],
                condition=Q(request_id__isnull=False),
                name="pulljobs_lease_request",
            ),
        ]

    def __str__(self) -> str:
        return str(self.id)


class Attempt(models.Model):
    """A claim that did not settle its job, or was renewed: what the archive can't tell of it."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    job_id = models.BigIntegerField()
    lease_token = models.UUIDField()
    node_id = models.UUIDField(null=True)
    via = models.CharField(max_length=8, choices=Lease.Via.choices)
    claimed_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    leased_until = models.DateTimeField()
    """Its deadline in the end."""
    renewals = models.IntegerField()
    event = models.CharField(max_length=10)
    """Of `states.Event`, by which it ended."""
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row

    class Meta:
        default_permissions = ()
        indexes = [models.Index(fields=["job_id", "id"], name="pulljobs_attempt_job")]

    def __str__(self) -> str:
        return f"{ids.encode(self.job_id)}: {self.event}"


class ArchivedJob(models.Model):
    """One settlement: partitioned by its own id, a day each, never updated or deleted by row."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    job_id = models.BigIntegerField(db_index=True)
    message = models.ForeignKey("pulljobs.Message", models.DO_NOTHING, db_constraint=False)
    consumer = models.ForeignKey(
        "pulljobs.Consumer", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    created_at = models.DateTimeField()
    claimed_at = models.DateTimeField(null=True)
    settled_at = models.DateTimeField()
    settled_xid = Xid8Field(db_default=CurrentTransaction())
    """The transaction that settled it: what an export can watch without losing a late commit."""
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
            # Settling pays next to nothing for it; but there are none of the column's own type.
            BrinIndex(
                Cast(Cast("settled_xid", models.TextField()), models.BigIntegerField()),
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
