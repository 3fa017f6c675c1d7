"""Timeline of a run: its steps as bars along the time from its first step to its last."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.links import Links
from pulljobs.models import ArchivedJob, Job
from pulljobs.workflows import reading
from pulljobs.workflows.reading import RunView, StepView

WIDTH: Final = 1000.0
NARROWEST: Final = 6.0
LONGEST_RESULT: Final = 2_000
SHOWN_CHILDREN: Final = 100


class Bar(NamedTuple):
    """Step as a bar of the timeline, with `left` and `width` in thousandths of the whole width."""

    step: StepView
    left: float
    width: float
    began: str
    duration: str
    result: str
    """JSON, or an empty text if there is none or the user may not read it."""
    children: list[tuple[str, str, str]]
    """Public id, state and URL of each child. The URL is empty if the user can't open it."""
    more_children: int

    @property
    def kind(self) -> str:
        """Kind of the step in lower case, such as `sleep`."""
        return str(self.step.row.get_kind_display()).lower()


def draw_steps(links: Links, run: RunView, *, may_read: bool) -> list[Bar]:
    """Return a bar for each step of a run, in order, with results only if `may_read` is set.

    `links` are those of the request, to the pages of children.
    """
    if not run.steps:
        return []
    begin = min(step.row.started_at for step in run.steps)
    spans = [((step.row.started_at - begin).total_seconds(), step.seconds) for step in run.steps]
    total = max(start + (seconds or 0) for start, seconds in spans) or 1.0
    known = reading.states_of(
        [id for step in run.steps for id in (step.row.children or [])[:SHOWN_CHILDREN]]
    )
    return [
        _draw(links, step, start / total, (seconds or 0) / total, known, may_read=may_read)
        for step, (start, seconds) in zip(run.steps, spans, strict=True)
    ]


def _draw(
    links: Links,
    step: StepView,
    start: float,
    length: float,
    known: Mapping[int, Job | ArchivedJob],
    *,
    may_read: bool,
) -> Bar:
    width = max(NARROWEST, WIDTH * length)
    children = step.row.children or []
    return Bar(
        step=step,
        left=round(min(WIDTH * start, WIDTH - width), 1),
        width=round(width, 1),
        began=formats.format_time(step.row.started_at),
        duration=_format_seconds(step.seconds),
        result=show_json(step.row.result) if may_read else "",
        children=[_show_child(links, id, known.get(id)) for id in children[:SHOWN_CHILDREN]],
        more_children=max(0, len(children) - SHOWN_CHILDREN),
    )


def _format_seconds(seconds: float | None) -> str:
    """Format seconds for people, as milliseconds below one second."""
    if seconds is not None and seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return formats.duration(seconds)


def show_json(value: Any) -> str:
    """Return the first `LONGEST_RESULT` characters of a value as JSON, or '' for None."""
    return "" if value is None else json.dumps(value, ensure_ascii=False)[:LONGEST_RESULT]


def _show_child(links: Links, id: int, job: Job | ArchivedJob | None) -> tuple[str, str, str]:
    if job is None:
        return ids.encode(id), "pruned", ""
    return ids.encode(id), job.state, links.row(job) or ""
