"""Links from the page of a job to its run, its batch, and the run whose child it is."""

from collections.abc import Iterator

from django.http import HttpRequest
from django.utils.functional import Promise
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.links import Links, linked
from pulljobs.conf import settings
from pulljobs.models import ArchivedJob, Job
from pulljobs.workflows.models import Batch, WorkflowRun

Link = tuple[str | Promise, SafeString | str]


def find_links(request: HttpRequest, row: Job | ArchivedJob) -> Iterator[Link]:
    """Yield a label and a link for the run of a job, its batch, and the run whose child it is.

    A page that the user may not see is named without a link. The archive does not know the batch of
    a job.
    """
    using = settings().DATABASE
    run = WorkflowRun.objects.using(using).filter(pk=formats.job_id_of(row)).first()
    if run is not None:
        text = f"{run.workflow}, version {run.version}"
        yield _("Run"), link_run(request, run.pk, text)
    if (batch_id := getattr(row, "batch_id", None)) is None:
        return
    batch = Batch.objects.using(using).filter(pk=batch_id).only("name", "run_id").first()
    if batch is None:
        yield _("Batch"), _("%s, which is no longer stored") % ids.encode(batch_id)
        return
    yield _("Batch"), link_batch(request, batch_id, batch.name)
    if batch.run_id is not None:
        yield _("Child of run"), link_run(request, batch.run_id)


def link_run(request: HttpRequest, run_id: int, text: str = "") -> SafeString | str:
    """Return a link to the page of a run, or its text for a user who may not see it."""
    return linked(Links(request).page(WorkflowRun, "change", run_id), text or ids.encode(run_id))


def link_batch(request: HttpRequest, batch_id: int, text: str = "") -> SafeString | str:
    """Return a link to the page of a batch, or its text for a user who may not see it."""
    return linked(Links(request).page(Batch, "change", batch_id), text or ids.encode(batch_id))
