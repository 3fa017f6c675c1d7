"""Runs of workflows, their finished and pending steps, and the signals to them."""

from typing import Final

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from pulljobs import ids
from pulljobs.models.fields import TimeOrderedId

LONGEST_NAME: Final = 200
"""Largest number of characters of the name of a step or a signal, and of a dedupe id."""


class StepKind(models.TextChoices):
    """Kind of a step, named after a method of the run that makes such steps."""

    STEP = "step"
    ATOMIC = "atomic"
    SLEEP = "sleep"
    WAIT = "wait"
    START = "start"
    GATHER = "gather"


class WorkflowRun(models.Model):
    """Run of a workflow. Its id is the id of its job, which has its state and its result."""

    id = models.BigIntegerField(primary_key=True)
    workflow = models.CharField(max_length=LONGEST_NAME)
    version = models.IntegerField()
    """Version of the code that claimed the run first, or with which it last began again."""
    waiting_for = models.CharField(max_length=LONGEST_NAME, null=True)  # noqa: DJ001  NULL: none
    """Name of the signal that the run waits for."""
    waiting_batch = models.BigIntegerField(null=True)
    """Batch of the children that the run waits for."""
    waiting_consumer = models.BigIntegerField(null=True)
    """Consumer of a run that waits for a worker which accepts its version."""
    rounds = models.IntegerField(default=0, db_default=0)
    """Number of calls of `continue_as`, and of messages that were replaced after the run began."""
    input = models.JSONField(null=True)
    """Payload of the last `continue_as`, in an array, or NULL: that of the message."""
    began_at = models.DateTimeField(db_default=Now())
    message_id = models.BigIntegerField(null=True)
    """Message for which the run began. Another one may take its place where a key is full."""

    class Meta:
        db_table = "pulljobs_run"
        verbose_name = "run"
        default_permissions = ("view",)
        permissions = [
            ("signal_workflowrun", "Can send signals to runs"),
            ("redrive_workflowrun", "Can redrive runs from a step"),
        ]
        indexes = [
            models.Index(
                fields=["waiting_for"],
                condition=Q(waiting_for__isnull=False),
                name="pulljobs_run_waiting",
            ),
            models.Index(
                fields=["waiting_consumer", "version", "id"],
                condition=Q(waiting_consumer__isnull=False),
                name="pulljobs_run_left",
            ),
        ]

    def __str__(self) -> str:
        return ids.encode(self.id)

    def began_for(self, message_id: int) -> bool:
        """Return True unless the run began for a message that the message `message_id` replaced."""
        return self.message_id in (None, message_id)


class WorkflowStep(models.Model):
    """Step of a run. The holder of its lease inserts the row, and sets its end at most once."""

    pk = models.CompositePrimaryKey("run_id", "name", "number")
    run_id = models.BigIntegerField()
    name = models.CharField(max_length=LONGEST_NAME)
    number = models.IntegerField()
    """Number of the step among those of its name, from 1 on."""
    position = models.IntegerField()
    """Place of the step in the run, from 1 on."""
    kind = models.CharField(max_length=6, choices=StepKind.choices)
    function = models.CharField(max_length=LONGEST_NAME, blank=True, default="")
    """Name of the function with its module, or channel of the children, for people."""
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True)
    """NULL while the run waits, and for good after a sleep that suspended the run."""
    due_at = models.DateTimeField(null=True)
    """End of a sleep, or of the time for a signal."""
    result = models.JSONField(null=True)
    failure = models.JSONField(null=True)
    """Exception that the workflow caught (see `failures.py`), or `timeout` of a wait."""
    batch_id = models.BigIntegerField(null=True)
    """Batch of the children."""
    children = ArrayField(models.BigIntegerField(), null=True)
    """Job ids of the children, in the order of their drafts."""

    class Meta:
        db_table = "pulljobs_step"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.name} {self.number} of {ids.encode(self.run_id)}"


class RunSignal(models.Model):
    """Signal to a run, which a wait of its name consumes. Its row stays: a redrive may need it."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    run_id = models.BigIntegerField()
    name = models.CharField(max_length=LONGEST_NAME)
    payload = models.JSONField(null=True)
    dedupe_id = models.CharField(max_length=LONGEST_NAME, null=True)  # noqa: DJ001  NULL: none
    consumed_at = models.DateTimeField(null=True)
    consumed_by = models.IntegerField(null=True)
    """Number of the wait that consumed it. NULL: none, or one that `continue_as` has forgotten."""
    is_new = models.BooleanField(default=True, db_default=True)
    """False once a wait consumed it or a wake-up of the run saw it. A sweep finds the others."""

    class Meta:
        db_table = "pulljobs_signal"
        verbose_name = "signal"
        default_permissions = ()
        indexes = [
            models.Index(
                fields=["run_id", "name", "id"],
                condition=Q(consumed_at__isnull=True),
                name="pulljobs_signal_waiting",
            ),
            models.Index(fields=["run_id", "id"], name="pulljobs_signal_run"),
            models.Index(fields=["id"], condition=Q(is_new=True), name="pulljobs_signal_new"),
        ]
        constraints = [
            models.UniqueConstraint(
                fields=["run_id", "dedupe_id"],
                condition=Q(dedupe_id__isnull=False),
                name="pulljobs_signal_dedupe",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} for {ids.encode(self.run_id)}"


class SignalToken(models.Model):
    """Permission to send one signal to one run over HTTP. Only its digest is stored."""

    id = models.BigIntegerField(primary_key=True, db_default=TimeOrderedId(), editable=False)
    digest = models.CharField(max_length=64, unique=True)
    run_id = models.BigIntegerField(db_index=True)
    name = models.CharField(max_length=LONGEST_NAME)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "pulljobs_signal_token"
        verbose_name = "signal token"
        default_permissions = ()

    def __str__(self) -> str:
        return f"token {self.id}"
