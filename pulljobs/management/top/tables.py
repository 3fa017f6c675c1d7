"""Frames of `pulljobs top` as lines of text and tables, cut to the size of the terminal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from pulljobs.admin.dashboard import formats
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus, total
from pulljobs.admin.dashboard.limit_holds import LimitHold
from pulljobs.admin.dashboard.reading import Part
from pulljobs.management.output_blocks import Block, Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.top.frame import TopFrame, ViewSize, empty_text
from pulljobs.management.top.nodes import render_nodes
from pulljobs.storage.backlog import Backlog
from pulljobs.storage.rows import Refusal

FIGURES: Final = ("ready", "later", "keys", "flight", "dead", "rate/s", "oldest")
BARS: Final = " ▁▂▃▄▅▆▇█"
WIDE: Final = 110
"""Terminal width in columns from which trends are shown."""
MINUTE: Final = 60.0

SORTS: Final[Mapping[str, Callable[[TopFrame, ConsumerStatus], Any]]] = {
    "need": lambda frame, status: (not status.is_unserved, -status.queued, status.path),
    "queue": lambda frame, status: (-status.queued, status.path),
    "rate": lambda frame, status: (-frame.rate(status.consumer), status.path),
    "oldest": lambda frame, status: (-(status.oldest_seconds or 0.0), status.path),
    "dead": lambda frame, status: (-status.backlog.dead, status.path),
    "name": lambda frame, status: status.path,
}


def render_frame(frame: TopFrame, sort: str, size: ViewSize) -> Iterator[Block]:
    """Render the status: consumers in the order that `sort` names, nodes and problems."""
    if frame.failure:
        yield StyledText(f"The database fails: {frame.failure}", Tone.BAD)
        return
    yield from render_consumers(frame, sort, size)
    yield from render_nodes(frame, size)
    yield from render_problems(frame, size)


def headline(frame: TopFrame) -> str:
    """Return the sums of all consumers' jobs as text, such as "5 ready, 2 in flight".

    Delayed, blocked and dead jobs are added if there are any.
    """
    if Part.CONSUMERS in frame.missed:
        return "jobs: not known"
    parts = [_sum(frame, "ready", "ready"), _sum(frame, "in_flight", "in flight")]
    parts += [_sum(frame, "delayed", "later"), _sum(frame, "blocked", "behind keys")]
    parts.append(_sum(frame, "dead", "dead"))
    return ", ".join(part for number, part in enumerate(parts) if number < 2 or part[:2] != "0 ")


def _sum(frame: TopFrame, name: str, label: str) -> str:
    return f"{total(frame.consumers, name)} {label}"


def throughput(frame: TopFrame) -> str:
    """Return the settlements per second of all consumers as text, and their trend as bars."""
    if Part.THROUGHPUT in frame.missed:
        return f"{formats.NOTHING} settled/s"
    about = "≈ " if frame.throughput.is_estimate else ""
    trend = sparkline([point.settled for point in frame.throughput.points])
    return f"{about}{format_rate(frame.rate())} settled/s {trend}".rstrip()


def render_consumers(frame: TopFrame, sort: str, size: ViewSize) -> Iterator[Block]:
    """Render the table of consumers, in the order that `sort` names, such as "queue"."""
    columns = [Column("consumer"), *(Column(name, is_number=True) for name in FIGURES)]
    if size.is_wide:
        columns.append(Column("last minute"))
    columns.append(Column("state", may_shrink=True))
    ordered = sorted(frame.consumers, key=lambda status: SORTS[sort](frame, status))
    shown = ordered[: size.consumers]
    yield TableBlock(
        columns,
        [_consumer_row(frame, status, size) for status in shown],
        empty_text(frame, Part.CONSUMERS, "There is no consumer."),
    )
    if more := len(ordered) - len(shown):
        yield StyledText(f"and {more:,} more", Tone.FAINT)


def _consumer_row(frame: TopFrame, status: ConsumerStatus, size: ViewSize) -> list[Cell]:
    backlog = status.backlog
    dead = _count(backlog, "dead", Tone.BAD)
    cells: list[Cell] = [
        StyledText(status.path, Tone.TITLE),
        _ready(status),
        *(_count(backlog, name) for name in ("delayed", "blocked", "in_flight")),
        dead,
        format_rate(frame.rate(status.consumer)),
        _brief(status.oldest_seconds),
    ]
    if size.is_wide:
        cells.append(StyledText(sparkline(frame.trend(status.consumer)), Tone.GOOD))
    return [*cells, state(status)]


def _ready(status: ConsumerStatus) -> StyledText:
    """Return the number of ready jobs as text.

    If there are more than were counted, return an estimate of all queued jobs. Without an
    estimate, return the count with a plus.
    """
    if not status.backlog.is_least("ready") or status.estimate is None:
        return _count(status.backlog, "ready")
    return StyledText(f"≈ {formats.compact(status.estimate)}")


def _count(backlog: Backlog, name: str, tone: Tone = Tone.PLAIN) -> StyledText:
    count, is_least = getattr(backlog, name), backlog.is_least(name)
    return StyledText(formats.counted(count, is_least=is_least), tone if count else Tone.FAINT)


def _brief(seconds: float | None) -> str:
    is_long = seconds is not None and seconds >= MINUTE
    return formats.coarse(seconds or 0.0) if is_long else formats.duration(seconds)


def state(status: ConsumerStatus) -> StyledText:
    """Return the first state that applies: unserved, paused, held back, limited, busy, idle."""
    if status.is_unserved:
        return StyledText("not served", Tone.BAD)
    if status.paused_until:
        left = formats.coarse((status.paused_until - status.now).total_seconds())
        return StyledText(f"paused, {left}", Tone.WARN)
    workers = status.workers or ()
    held_back = [held for each in workers for held in each.held_back if held.path == status.path]
    if tasks := {held.task for held in held_back if held.task}:
        return StyledText(f"{len(tasks)} task{'s' * (len(tasks) > 1)} held back", Tone.WARN)
    if held_back:
        return StyledText(f"held back, {len(held_back)}/{len(workers)}", Tone.WARN)
    if status.hold is not None:
        return StyledText(_describe_hold(status.hold, status.now), Tone.WARN)
    if status.backlog.ready or status.backlog.in_flight:
        return StyledText("busy", Tone.GOOD)
    return StyledText("idle", Tone.FAINT)


def _describe_hold(hold: LimitHold, now: datetime) -> str:
    if hold.until is not None:
        return f"throttled, {formats.coarse((hold.until - now).total_seconds())}"
    if hold.code is not Refusal.KEY_LIMITED:
        return "at its rate" if hold.code is Refusal.RATE_LIMITED else "at max_in_flight"
    parts = [(hold.full_keys, "full"), (hold.later_keys, "later")]
    return "keys: " + ", ".join(f"{count:,} {name}" for count, name in parts if count)


def render_missed(frame: TopFrame) -> Iterator[Block]:
    """Render the parts that could not be read, such as nodes or dead jobs, and the reason."""
    if frame.missed:
        names = ", ".join(str(part.label) for part in frame.missed)
        late = "" if frame.error else " in time"
        yield StyledText(f"The database did not answer{late}: {names}.", Tone.WARN)
    if frame.error:
        yield StyledText(frame.error, Tone.BAD)


def render_problems(frame: TopFrame, size: ViewSize) -> Iterator[Block]:
    """Render the parts that could not be read, and then the problems, the worst first."""
    yield from render_missed(frame)
    yield StyledText("")
    if not (frame.problems or frame.missed):
        yield StyledText("Nothing needs attention.", Tone.GOOD)
    shown = frame.problems[: size.problems]
    for problem in shown:
        mark, tone = ("!!", Tone.BAD) if problem.is_bad else (" !", Tone.WARN)
        yield StyledText(f"{mark} {problem.text}", tone)
    if more := len(frame.problems) - len(shown):
        yield StyledText(f"   and {more:,} more problems", Tone.FAINT)


def format_rate(by_second: float) -> str:
    """Format a number per second: whole from 100 on, else with a decimal."""
    return f"{by_second:,.0f}" if by_second >= 100 or not by_second else f"{by_second:,.1f}"


def sparkline(totals: Sequence[float]) -> str:
    """Return a text with one bar for each total, relative to the highest."""
    highest = max(totals, default=0) or 1
    steps = len(BARS) - 1
    return "".join(BARS[min(steps, -int(-total / highest * steps // 1))] for total in totals)
