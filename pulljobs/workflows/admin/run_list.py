"""List of runs in the admin: its filters, its search, and the jobs of its rows."""

from typing import Any

from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from pulljobs.admin import list_query, search
from pulljobs.admin.filters import Choice, Choices
from pulljobs.admin.job_list import SearchedChangeList
from pulljobs.admin.search import SearchedRange
from pulljobs.conf import settings
from pulljobs.states import State
from pulljobs.storage import all_jobs
from pulljobs.storage.published import NUL
from pulljobs.storage.windows import IdSpan
from pulljobs.workflows import listing, reading
from pulljobs.workflows.listing import RunSelection


class RunStateFilter(Choice):
    title, parameter_name = _("state"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        states = (State.QUEUED, State.INFLIGHT, State.DEAD)
        return [*((state.value, state.value) for state in states), (listing.ENDED, _("ended"))]


class WorkflowFilter(Choice):
    title, parameter_name = _("workflow"), "workflow"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        known = dict.fromkeys(name for name, _v in listing.known_versions(settings().DATABASE))
        return [(name, name) for name in known]


class VersionFilter(Choice):
    title, parameter_name = _("version"), "version"

    def lookups(self, request: HttpRequest, model_admin: Any) -> Choices:
        known = {version for _name, version in listing.known_versions(settings().DATABASE)}
        return [(str(version), str(version)) for version in sorted(known)]


class RunChangeList(SearchedChangeList):
    """List of runs that reads the jobs of its rows, whose states it shows."""

    def read_rows(self, request: HttpRequest, ids: list[int]) -> list[Any]:
        rows = super().read_rows(request, ids)
        known = reading.states_of([row.pk for row in rows])
        for row in rows:
            row.job_row = known.get(row.pk)
        return rows


def select_runs(request: HttpRequest) -> RunSelection:
    """Return the filters that the query string of the list names, without the search term."""
    # PostgreSQL refuses NUL. No workflow has the character that replaces it.
    given = {name: request.GET.get(name, "") for name in RunSelection._fields}
    asked = {name: text.replace(NUL, "\ufffd") or None for name, text in given.items()}
    version = asked["version"]
    return RunSelection(
        workflow=asked["workflow"],
        version=None if version is None else list_query.parse_id(version),
        state=asked["state"],
    )


def search_runs(request: HttpRequest, span: IdSpan) -> SearchedRange:
    """Find runs by an id, or else by a text in an error or message of their jobs.

    The id is that of a run or a message, or a client message id. The result has only runs that
    match the filters of the list.
    """
    using, meant = settings().DATABASE, select_runs(request)

    def find_ids(term: str) -> list[int]:
        jobs = list_query.find_jobs(term, list_query.select_all_jobs({}))
        return listing.choose(using, {*search.numbers([term]), *jobs}, meant)

    return search.search(
        request,
        span,
        find_ids,
        lambda at: listing.read_window(using, meant, at),
        lambda read, query: all_jobs.find_hits(using, read, query, archived=True),
    )
