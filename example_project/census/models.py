"""Models of the census. Jobs and their outcomes are in the tables of pulljobs."""

from django.db import models
from django.db.models.functions import Now


class Run(models.Model):
    """Census of a set of files. Its row is committed together with its messages."""

    started_at = models.DateTimeField(db_default=Now())
    jobs = models.PositiveIntegerField(default=0)
    """Number of jobs that the messages became."""

    def __str__(self) -> str:
        return f"run {self.pk}"


class File(models.Model):
    """File that a census counts, and the id of the message that was published for it."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="files")
    path = models.TextField()
    message_id = models.BigIntegerField(unique=True)

    def __str__(self) -> str:
        return self.path


class Count(models.Model):
    """Counts of one file, written by the handler of the consumer `census`.

    No constraint prevents two rows of a job, on purpose: a transactional handler promises one row,
    and `demo` checks that promise.
    """

    message_id = models.BigIntegerField(db_index=True)
    functions = models.PositiveIntegerField()
    classes = models.PositiveIntegerField()
    lines = models.PositiveIntegerField()
    size = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.functions} functions, {self.classes} classes, {self.lines} lines"
