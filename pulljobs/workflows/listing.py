"""Reading of run ids for the list in the admin: filters by workflow, version and state."""

from collections.abc import Collection
from typing import Final, NamedTuple

from pulljobs.models import Job
from pulljobs.storage.statements import run
from pulljobs.storage.windows import IdRun, IdSpan, IdWindow, merged
from pulljobs.workflows.models import WorkflowRun

ENDED: Final = "ended"
"""State of runs whose job is no longer live."""
KNOWN: Final = 1_000
"""Runs that are read from each end of the table to offer their workflows and versions."""


class RunSelection(NamedTuple):
    """Filters of a list of runs. A filter that is None matches every run."""

    workflow: str | None = None
    version: int | None = None
    state: str | None = None


def read_window(using: str, selection: RunSelection, span: IdSpan) -> IdWindow:
    """Return the next matching run ids of a span, newest first, and the id to go on below.

    That id is None if no older run is left.
    """
    params = {
        "below": span.beyond,
        "scanned": span.scanned,
        "wanted": span.wanted + 1,
        **selection._asdict(),
    }
    ids = [row.id for row in run(using, "list_runs", params)]
    reached = None if len(ids) > span.wanted else _find_end(using, span)
    return merged([IdRun(ids, reached)], span)


def choose(using: str, run_ids: Collection[int], selection: RunSelection) -> list[int]:
    """Return the ids of those runs that match the filters, newest first."""
    rows = WorkflowRun.objects.using(using).filter(pk__in=run_ids)
    if selection.workflow is not None:
        rows = rows.filter(workflow=selection.workflow)
    if selection.version is not None:
        rows = rows.filter(version=selection.version)
    known = list(rows.order_by("-id").values_list("id", flat=True))
    states = dict(Job.objects.using(using).filter(pk__in=known).values_list("id", "state"))
    return [id for id in known if selection.state in (None, states.get(id, ENDED))]


def known_versions(using: str) -> list[tuple[str, int]]:
    """Return sorted pairs of workflow and version of the `KNOWN` newest and oldest runs."""
    rows = run(using, "known_versions", {"most": KNOWN})
    return [(row.workflow, row.version) for row in rows]


def _find_end(using: str, span: IdSpan) -> int | None:
    """Return the lowest of the `span.scanned` run ids that are read, or None if no run is older."""
    rows = WorkflowRun.objects.using(using).filter(id__lt=span.beyond).order_by("-id")
    ends = list(rows.values_list("id", flat=True)[span.scanned - 1 : span.scanned + 1])
    return ends[0] if len(ends) > 1 else None
