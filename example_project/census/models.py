"""What the census keeps. Which jobs its messages became, and how they went, only pulljobs knows."""

from django.db import models
from django.db.models.functions import Now


class Run(models.Model):
    """One census: made in the transaction that publishes its messages, so never half."""

    started_at = models.DateTimeField(db_default=Now())
    jobs = models.PositiveIntegerField(default=0)

    def __str__(self) -> str:
        return f"run {self.pk}"


class File(models.Model):
    """A file that a run is about, and the message that tells the consumers of it."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="files")
    path = models.TextField()
    message_id = models.BigIntegerField(unique=True)

    def __str__(self) -> str:
        return self.path


class Count(models.Model):
    """What one job of the consumer `census` found.

    On purpose nothing here would stop a job from leaving two rows: that there is one is the promise
    of a transactional handler, and `demo` looks whether it was kept.
    """

    message_id = models.BigIntegerField(db_index=True)
    functions = models.PositiveIntegerField()
    classes = models.PositiveIntegerField()
    lines = models.PositiveIntegerField()
    size = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.functions} functions, {self.classes} classes, {self.lines} lines"
