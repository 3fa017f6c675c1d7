"""Models of jobs and of the leases that hold them."""

import uuid
from datetime import UTC, datetime
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Case, Q, Value, When
from django.db.models.signals import pre_delete
from django.dispatch import receiver

from pulljobs import ids
from pulljobs.errors import LONGEST_DELAY
from pulljobs.models.fields import TimeOrderedId
from pulljobs.states import Reason, State, reason_words

STATES = [(state.value, state.value) for state in State]
REASONS = [(reason.value, reason_words(reason)) for reason in Reason]


def _state() -> Case:
    """Return an SQL expression for the state that the other columns of a job imply."""
    alive = Case(
        When(lease_token=None, then=Value(State.QUEUED.value)), default=Value(State.INFLIGHT.value)
    )
    return Case(
        When(reason=None, then=alive),
        When(available_at=None, lease_token=None, then=Value(State.DEAD.value)),
        default=Value("impossible"),  # longer than the column takes
    )


class Job(models.Model):
    """Job of one consumer for one message. The row is deleted on delivery.

    The order of the columns avoids padding. No column that a claim writes (state, lease_token,
    deliveries, first_claimed_at) may be in an index or an index predicate, so that PostgreSQL
    updates the row without index entries (a HOT update).
    """

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    consumer = models.ForeignKey(
        "pulljobs.Consumer", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    message = models.ForeignKey(
        "pulljobs.Message", models.DO_NOTHING, db_constraint=False, db_index=False
    )
    batch_id = models.BigIntegerField(null=True)
    """Id of the batch of which it is a member. See `pulljobs.workflows`."""
    available_at = models.DateTimeField(null=True)
    """Time from which it may be claimed. NULL: not now, because it is DEAD or behind its key."""
    first_claimed_at = models.DateTimeField(null=True)
    incremental_timeout = models.DurationField(null=True)
    retry_count = models.IntegerField(default=0)
    deliveries = models.IntegerField(default=0)
    priority = models.SmallIntegerField(default=0)
    lease_token = models.UUIDField(null=True)
    """Token of the claim that holds the job, or NULL if it is not in flight."""
    state = models.CharField(max_length=9, choices=STATES)
    reason = models.CharField(max_length=20, null=True, choices=REASONS)  # noqa: DJ001  NULL unless DEAD
    key = models.CharField(max_length=255, null=True)  # noqa: DJ001  no key is not an empty key
    """Key of the message, if the consumer used keys when it was published."""
    turn_key = models.CharField(max_length=255, null=True)  # noqa: DJ001  no key is an empty one here
    """Key whose turn the job waits for, empty without a key. NULL if its consumer has no turns.

    It is not `key`, because jobs of exclusive keys are claimed in the order of ids, and these by
    priority: each column has its own index.
    """
    error = models.TextField(null=True)  # noqa: DJ001  NULL takes no room in the row
    """Error text of its last failure."""
    cost = models.IntegerField(null=True)
    """Tokens of a rate limit that a claim of it takes. NULL: one."""
    suspect = models.BooleanField(default=False, db_default=False)
    """True if it ran in a process that crashed or whose event loop it blocked.

    It runs alone the next time.
    """

    class Meta:
        permissions = [
            ("redrive_job", "Can queue dead jobs again"),
            ("requeue_job", "Can take running jobs from their workers"),
            ("kill_job", "Can kill queued and running jobs"),
            ("reschedule_job", "Can change when jobs are due"),
        ]
        indexes = [
            models.Index(
                fields=["consumer", "-priority", "available_at", "id"],
                # Always true. Without it a plan that is made while the table is empty, when all
                # indexes cost the same, may use this one to find ids and read all of it.
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
            models.Index(
                fields=["batch_id", "id"],
                condition=Q(batch_id__isnull=False, reason__isnull=False),
                name="pulljobs_job_batch",
            ),
            models.Index(
                fields=["consumer", "turn_key", "-priority", "available_at", "id"],
                condition=Q(turn_key__isnull=False, reason__isnull=True),
                name="pulljobs_job_turn",
            ),
        ]
        constraints = [
            models.UniqueConstraint(fields=["message", "consumer"], name="pulljobs_job_fan_out"),
            # A single short check: the server parses it for every statement that writes jobs, and
            # that takes longer than to evaluate it.
            models.CheckConstraint(
                condition=Q(state=_state(), retry_count__gte=0, deliveries__gte=0),
                name="pulljobs_job_state",
            ),
        ]

    def __str__(self) -> str:
        return ids.encode(self.id)

    @property
    def due_at(self) -> datetime | None:
        """Time from which it can be claimed, or None if dead, blocked or due in over 50 years.

        A claim does not change it: a job in flight has the time from before its claim.
        """
        at = self.available_at
        return None if at is None or at - datetime.now(UTC) > LONGEST_DELAY / 2 else at


@receiver(pre_delete, sender="pulljobs.Consumer")
def _keep_while_it_has_jobs(instance: models.Model, using: str, **kwargs: Any) -> None:
    """Raise ProtectedError if a consumer to be deleted has jobs, as a foreign key's PROTECT does.

    Jobs have no foreign key in the database, because it would slow down every publish.
    """
    held = Job.objects.using(using).filter(consumer_id=instance.pk)[:1]
    if held:
        raise models.ProtectedError(
            f"Consumer {instance} has jobs, which could neither run nor be seen any more. Delete "
            "it in the admin, or by pulljobs.registering.delete_consumer once it has no live jobs: "
            "its row is kept for its history.",
            set(held),
        )


class Lease(models.Model):
    """Lease of one claim. A renewal writes this row, not those of the jobs.

    It holds the jobs of `job_ids` whose `lease_token` is the same: ids of settled jobs stay in
    `job_ids` until the row is deleted. Jobs that are renewed separately from the rest of their
    claim get a row of their own with the same token.
    """

    class Via(models.TextChoices):
        """Way in which jobs were claimed.

        POST is the job POST of the broker protocol. A client can report on such a job without its
        lease token, but not on a job that was claimed in another way.
        """

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
    """Jobs whose handlers ran at the last renewal: crash suspects if their host crashes.

    An empty array also marks a claim whose request was repeated.
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
