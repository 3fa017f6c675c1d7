"""A frame in words and tables, as many rows of each as there is room for."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.consumers import ConsumerStatus, total
from pulljobs.admin.dashboard.reading import Part
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.management.output_blocks import Block, Cell, Column, StyledText, TableBlock, Tone
from pulljobs.management.top.frame import TopFrame
from pulljobs.storage.backlog import Backlog

BARS: Final = " ▁▂▃▄▅▆▇█"
WIDE: Final = 110
"""Columns of a terminal that has room for trends and times."""
ALL: Final = 10_000
MINUTE: Final = 60.0

SORTS: Final[Mapping[str, Callable[[TopFrame, ConsumerStatus], Any]]] = {
    "need": lambda frame, one: (not one.is_unserved, -one.queued, one.path),
    "queue": lambda frame, one: (-one.queued, one.path),
    "rate": lambda frame, one: (-frame.rate(one.consumer), one.path),
    "oldest": lambda frame, one: (-(one.oldest_seconds or 0.0), one.path),
    "dead": lambda frame, one: (-one.backlog.dead, one.path),
    "name": lambda frame, one: one.path,
}


@dataclass(frozen=True)
class ViewSize:
    """Rows of each table, and whether lines are long."""

    consumers: int = ALL
    nodes: int = ALL
    problems: int = ALL
    is_wide: bool = True


def of(frame: TopFrame, sort: str, room: ViewSize) -> Iterator[Block]:
    if frame.failure:
        yield StyledText(f"The database fails: {frame.failure}", Tone.BAD)
        return
    yield from consumers(frame, sort, room)
    yield from nodes(frame, room)
    yield from problems(frame, room)


def headline(frame: TopFrame) -> str:
    """The sums; of what is seldom only where there is some."""
    if Part.CONSUMERS in frame.missed:
        return "jobs: not known"
    parts = [_sum(frame, "ready", "ready"), _sum(frame, "in_flight", "in flight")]
    parts += [_sum(frame, "delayed", "later"), _sum(frame, "blocked", "behind keys")]
    parts.append(_sum(frame, "dead", "dead"))
    return ", ".join(part for number, part in enumerate(parts) if number < 2 or part[:2] != "0 ")


def _sum(frame: TopFrame, name: str, word: str) -> str:
    return f"{total(frame.standings, name)} {word}"


def throughput(frame: TopFrame) -> str:
    if Part.THROUGHPUT in frame.missed:
        return f"{figures.NOTHING} settled/s"
    about = "≈ " if frame.lately.is_estimate else ""
    trend = spark([point.settled for point in frame.lately.points])
    return f"{about}{rate(frame.rate())} settled/s {trend}".rstrip()


def consumers(frame: TopFrame, sort: str, room: ViewSize) -> Iterator[Block]:
    columns = [Column("consumer"), *(Column(one, is_number=True) for one in _counts(room))]
    if room.is_wide:
        columns.append(Column("last minute"))
    columns.append(Column("state", may_shrink=True))
    ordered = sorted(frame.standings, key=lambda one: SORTS[sort](frame, one))
    shown = ordered[: room.consumers]
    yield TableBlock(
        columns,
        [_consumer(frame, one, room) for one in shown],
        _nothing(frame, Part.CONSUMERS, "There is no consumer."),
    )
    if more := len(ordered) - len(shown):
        yield StyledText(f"and {more:,} more", Tone.FAINT)


def _counts(room: ViewSize) -> list[str]:
    flow = ["rate/s", "wait p95", "run p95", "oldest"] if room.is_wide else ["rate/s", "oldest"]
    return ["ready", "later", "keys", "flight", "dead", *flow]


def _consumer(frame: TopFrame, one: ConsumerStatus, room: ViewSize) -> list[Cell]:
    had, tally = one.backlog, frame.lately.consumers.get(one.consumer.pk)
    dead = _count(had, "dead", Tone.BAD)
    times: list[Cell] = []
    if room.is_wide:
        times = [_p95(tally.waits if tally else None), _p95(tally.runs if tally else None)]
    cells: list[Cell] = [
        StyledText(one.path, Tone.TITLE),
        _ready(one),
        *(_count(had, name) for name in ("delayed", "blocked", "in_flight")),
        dead,
        rate(frame.rate(one.consumer)),
        *times,
        _brief(one.oldest_seconds),
    ]
    if room.is_wide:
        cells.append(StyledText(spark(frame.trend(one.consumer)), Tone.GOOD))
    return [*cells, state(one)]


def _ready(one: ConsumerStatus) -> StyledText:
    """Where it is too much to be counted, about how much is queued."""
    if not one.backlog.is_least("ready") or one.estimate is None:
        return _count(one.backlog, "ready")
    return StyledText(f"≈ {figures.compact(one.estimate)}")


def _count(had: Backlog, name: str, tone: Tone = Tone.PLAIN) -> StyledText:
    count, is_least = getattr(had, name), had.is_least(name)
    return StyledText(figures.counted(count, is_least=is_least), tone if count else Tone.FAINT)


def _p95(times: tuple[float, float, float] | None) -> str:
    return _brief(times[1] if times else None)


def _brief(seconds: float | None) -> str:
    is_long = seconds is not None and seconds >= MINUTE
    return figures.coarse(seconds or 0.0) if is_long else figures.duration(seconds)


def state(one: ConsumerStatus) -> StyledText:
    """The worst of it."""
    if one.is_unserved:
        return StyledText("not served", Tone.BAD)
    if one.paused_until:
        left = figures.coarse((one.paused_until - one.now).total_seconds())
        return StyledText(f"paused, {left}", Tone.WARN)
    held_back = [one.path in worker.circuits for worker in one.workers or ()]
    if any(held_back):
        return StyledText(f"held back, {sum(held_back)}/{len(held_back)}", Tone.WARN)
    if one.backlog.ready or one.backlog.in_flight:
        return StyledText("busy", Tone.GOOD)
    return StyledText("idle", Tone.FAINT)


def nodes(frame: TopFrame, room: ViewSize) -> Iterator[Block]:
    columns = [
        Column("node"),
        Column("kind"),
        *(Column(name, is_number=True) for name in ("up", "beat", "held", "done")),
        Column("does now", may_shrink=True),
    ]
    shown = frame.workers[: room.nodes]
    yield StyledText("")
    yield TableBlock(
        columns, [_node(one) for one in shown], _nothing(frame, Part.WORKERS, "No node is at work.")
    )
    if more := len(frame.workers) - len(shown):
        yield StyledText(f"and {more:,} more", Tone.FAINT)


def _node(one: Worker) -> list[Cell]:
    return [
        StyledText(one.node.name, Tone.TITLE),
        one.node.kind,
        one.uptime,
        one.silence_text,
        f"{one.held:,}",
        one.done or figures.NOTHING,
        does(one),
    ]


def does(one: Worker) -> StyledText:
    """Of which consumers it runs how many jobs, the longest first, unless it is not well."""
    if not one.is_healthy:
        return StyledText(str(one.status), Tone.BAD)
    if not one.running:
        return StyledText("nothing", Tone.FAINT)
    counts = Counter(run.consumer for run in one.running)
    longest = {run.consumer: run.time for run in reversed(one.running)}
    told = [f"{place} × {counts[place]}, {longest[place]}" for place in counts]
    return StyledText("; ".join(told), Tone.GOOD)


def _nothing(frame: TopFrame, part: Part, otherwise: str) -> str:
    """What an empty table says."""
    return "It is not known." if part in frame.missed else otherwise


def missed(frame: TopFrame) -> Iterator[Block]:
    if frame.missed:
        names = ", ".join(str(part.label) for part in frame.missed)
        late = "" if frame.error else " in time"
        yield StyledText(f"The database did not tell{late}: {names}.", Tone.WARN)
    if frame.error:
        yield StyledText(frame.error, Tone.BAD)


def problems(frame: TopFrame, room: ViewSize) -> Iterator[Block]:
    yield from missed(frame)
    yield StyledText("")
    if not (frame.findings or frame.missed):
        yield StyledText("Nothing needs attention.", Tone.GOOD)
    shown = frame.findings[: room.problems]
    for one in shown:
        mark, tone = ("!!", Tone.BAD) if one.is_bad else (" !", Tone.WARN)
        yield StyledText(f"{mark} {one.text}", tone)
    if more := len(frame.findings) - len(shown):
        yield StyledText(f"   and {more:,} more problems", Tone.FAINT)


def rate(by_second: float) -> str:
    return f"{by_second:,.0f}" if by_second >= 100 or not by_second else f"{by_second:,.1f}"


def spark(totals: Sequence[float]) -> str:
    highest = max(totals, default=0) or 1
    steps = len(BARS) - 1
    return "".join(BARS[min(steps, -int(-total / highest * steps // 1))] for total in totals)
