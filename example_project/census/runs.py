"""Start of a census, and queries of its jobs."""

from collections.abc import Callable, Sequence
from pathlib import Path

from django.db import transaction
from django.db.models import QuerySet

from example_project.census.models import File, Run
from example_project.census.pull_handlers import CHANNEL, REPORTS
from pulljobs import batches
from pulljobs.models import ArchivedJob, Job
from pulljobs.publishing import Draft, Receipt, publish_many
from pulljobs.states import State

Publish = Callable[[str, list[Draft]], list[Receipt]]


@transaction.atomic
def begin(paths: Sequence[Path]) -> Run:
    """Begin a census: publish a message for each file in one transaction, and return the row."""
    return _fill(Run.objects.create(), paths, publish_many)


@transaction.atomic
def begin_batch(paths: Sequence[Path]) -> Run:
    """Publish a message for each file as `begin` does, in a batch that calls back at its end."""
    run = Run.objects.create()
    with batches.batch("census", on_complete=(REPORTS, {"run": run.pk})) as made:
        return _fill(run, paths, made.publish_many)


def _fill(run: Run, paths: Sequence[Path], publish: Publish) -> Run:
    receipts = publish(CHANNEL, [_draft(run, *numbered) for numbered in enumerate(paths, 1)])
    File.objects.bulk_create(
        [_file(run, path, receipt) for path, receipt in zip(paths, receipts, strict=True)],
        batch_size=2000,
    )
    run.jobs = sum(len(receipt.job_ids) for receipt in receipts)
    run.save()
    return run


def live(run: Run) -> QuerySet[Job]:
    """Return the jobs of a census that are queued, in flight or dead."""
    return Job.objects.filter(message_id__in=run.files.values("message_id"))


def archived(run: Run) -> QuerySet[ArchivedJob]:
    """Return the settlements of a census's jobs. A dead job that was redriven may have two."""
    return ArchivedJob.objects.filter(message_id__in=run.files.values("message_id"))


def dead(run: Run) -> QuerySet[Job]:
    return live(run).filter(state=State.DEAD)


def unsettled(run: Run) -> int:
    return live(run).exclude(state=State.DEAD).count()


def _draft(run: Run, number: int, path: Path) -> Draft:
    return Draft(payload={"path": str(path)}, message_id=f"census-{run.pk}-{number}")


def _file(run: Run, path: Path, receipt: Receipt) -> File:
    return File(run=run, path=str(path), message_id=receipt.message_id)
