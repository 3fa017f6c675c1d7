"""Pages of runs: a list, and a page with the timeline of the steps."""

from functools import partial
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from pulljobs import ids
from pulljobs.admin import formats, payloads, search
from pulljobs.admin.changelist import ReadOnlyAdmin
from pulljobs.admin.links import Links, linked
from pulljobs.admin.search import SearchedRange
from pulljobs.conf import settings
from pulljobs.errors import UnknownJob
from pulljobs.models import ArchivedJob, Job, Message
from pulljobs.states import State
from pulljobs.storage.windows import IdSpan, IdWindow
from pulljobs.workflows import listing, reading, versions
from pulljobs.workflows.admin import run_actions, run_list, timeline
from pulljobs.workflows.admin.run_list import (
    RunChangeList,
    RunStateFilter,
    VersionFilter,
    WorkflowFilter,
)
from pulljobs.workflows.models import Batch, WorkflowRun
from pulljobs.workflows.reading import RunView


@admin.register(WorkflowRun)
class WorkflowRunAdmin(ReadOnlyAdmin):
    list_display = ("xid", "workflow", "status", "waits", "version", "began")
    list_filter = (RunStateFilter, WorkflowFilter, VersionFilter)
    list_per_page = 50
    search_fields = ("id",)
    search_help_text = search.HELP
    fields = ()

    class Media:
        css: ClassVar = {"all": ["pulljobs/admin.css", "pulljobs_workflows/admin.css"]}

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return RunChangeList

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Return the rows unchanged: `search` finds rows in place of Django's search."""
        return queryset, False

    def window(self, request: HttpRequest, span: IdSpan, rows: QuerySet[Any]) -> IdWindow:
        return listing.read_window(settings().DATABASE, run_list.select_runs(request), span)

    def search(self, request: HttpRequest, span: IdSpan) -> SearchedRange:
        """Return the runs within a range of ids that the search term finds."""
        return run_list.search_runs(request, span)

    @admin.display(description=_("run"))
    def xid(self, row: WorkflowRun) -> str:
        return ids.encode(row.pk)

    @admin.display(description=_("state"))
    def status(self, row: Any) -> SafeString | str:
        return formats.status_of(row.job_row) if row.job_row is not None else formats.NOTHING

    @admin.display(description=_("waits for"))
    def waits(self, row: Any) -> str:
        job = row.job_row
        if not isinstance(job, Job):
            return formats.NOTHING
        waits = reading.describe_wait(row, job)
        return waits if waits != "a worker" else formats.format_time(job.available_at)

    @admin.display(description=_("began"))
    def began(self, row: WorkflowRun) -> str:
        return formats.format_time(row.began_at)

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path(
                f"<int:id>/{name}/",
                view(partial(act, self)),
                name=f"pulljobs_workflows_workflowrun_{name}",
            )
            for name, act in run_actions.PAGES.items()
        ]
        return [*own, *super().get_urls()]

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        """Render the page of a run with a content security policy, because it shows payloads.

        Redirect to the list if the job of the run is gone: runs are deleted later than their jobs.
        """
        try:
            response = super().changeform_view(request, object_id, form_url, extra_context)
        except UnknownJob as error:
            messages.warning(request, _("The run can't be shown: %s") % error)
            page = "pulljobs_workflows_workflowrun_changelist"
            return HttpResponseRedirect(formats.address(self.admin_site.name, page))
        response.headers.setdefault("Content-Security-Policy", payloads.page_policy())
        return response

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        may_read = payloads.may_read(request)
        run = reading.get(context["original"].pk, with_results=may_read)
        context |= _describe(request, run, may_read=may_read)
        return super().render_change_form(request, context, *args, **kwargs)


def _describe(request: HttpRequest, run: RunView, *, may_read: bool) -> dict[str, Any]:
    row = reading.states_of([run.row.pk]).get(run.row.pk)
    return {
        "run": run,
        "title": _("Run %s") % run.id,
        "state": formats.badge(row) if row is not None else run.job.state,
        "job_link": _link_job(request, row),
        "left": versions.describe_left(settings().DATABASE, row.consumer_id, run.row)
        if isinstance(row, Job) and row.state == State.QUEUED and run.row.began_for(row.message_id)
        else "",
        "bars": timeline.draw_steps(Links(request), run, may_read=may_read),
        "input": _read_input(run) if may_read else None,
        "result": timeline.show_json(run.job.result) if may_read else None,
        "is_masked": not may_read,
        "may_see_batches": Links(request).page(Batch, "changelist") is not None,
        "to_read_it": payloads.PERMISSION,
        "may_signal": run_actions.may(request, "signal")
        and run.job.state in ("QUEUED", "INFLIGHT"),
        "may_redrive": run_actions.may(request, "redrive") and run.job.state in ("QUEUED", "DEAD"),
    }


def _read_input(run: RunView) -> str:
    """Return the input of a run as text, from its last `continue_as` or from its message."""
    if run.row.input is not None:
        return timeline.show_json(run.row.input[0])
    rows = Message.objects.using(run.row._state.db)
    content = payloads.content_of(rows, run.job.message_id)
    return content.text if content is not None else ""


def _link_job(request: HttpRequest, row: Job | ArchivedJob | None) -> SafeString | str:
    if row is None:
        return formats.NOTHING
    return linked(Links(request).row(row), ids.encode(formats.job_id_of(row)))
