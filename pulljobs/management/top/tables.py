"""A frame in words and tables, as many rows of each as there is room for."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.consumers import ConsumerStatus, total
from pulljobs.admin.dashboard.reading import Part
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.management.output_blocks import Block, Cell, Column, Table, Tone, Words
from pulljobs.management.top.frame import Frame
from pulljobs.storage.backlog import Backlog

BARS: Final = " ▁▂▃▄▅▆▇█"
WIDE: Final = 110
"""Columns of a terminal that has room for trends and times."""
ALL: Final = 10_000
MINUTE: Final = 60.0

SORTS: Final[Mapping[str, Callable[[Frame, ConsumerStatus], Any]]] = {
    "need": lambda frame, one: (not one.is_unserved, -one.queued, one.path),
    "queue": lambda frame, one: (-one.queued, one.path),
    "rate": lambda frame, one: (-frame.rate(one.consumer), one.path),
    "oldest": lambda frame, one: (-(one.oldest_seconds or 0.0), one.path),
    "dead": lambda frame, one: (-one.backlog.dead, one.path),
    "name": lambda frame, one: one.path,
}


@dataclass(frozen=True)
class Room:
    """Rows of each table, and whether lines are long."""

    consumers: int = ALL
    nodes: int = ALL
    problems: int = ALL
    is_wide: bool = True


def of(frame: Frame, sort: str, room: Room) -> Iterator[Block]:
    if frame.failure:
        yield Words(f"The database fails: {frame.failure}", Tone.BAD)
        return
    yield from consumers(frame, sort, room)
    yield from nodes(frame, room)
    yield from problems(frame, room)


def headline(frame: Frame) -> str:
    """The sums; of what is seldom only where there is some."""
    if Part.CONSUMERS in frame.missed:
        return "jobs: not known"
    parts = [_sum(frame, "ready", "ready"), _sum(frame, "in_flight", "in flight")]
    parts += [_sum(frame, "delayed", "later"), _sum(frame, "blocked", "behind keys")]
    parts.append(_sum(frame, "dead", "dead"))
    return ", ".join(part for number, part in enumerate(parts) if number < 2 or part[:2] != "0 ")


def _sum(frame: Frame, name: str, word: str) -> str:
    return f"{total(frame.standings, name)} {word}"


def throughput(frame: Frame) -> str:
    if Part.THROUGHPUT in frame.missed:
        return f"{figures.NOTHING} settled/s"
    about = "≈ " if frame.lately.is_estimate else ""
    trend = spark([point.settled for point in frame.lately.points])
    return f"{about}{rate(frame.rate())} settled/s {trend}".rstrip()


def consumers(frame: Frame, sort: str, room: Room) -> Iterator[Block]:
    columns = [Column("consumer"), *(Column(one, is_number=True) for one in _counts(room))]
    if room.is_wide:
        columns.append(Column("last minute"))
    columns.append(Column("state", may_shrink=True))
    ordered = sorted(frame.standings, key=lambda one: SORTS[sort](frame, one))
    shown = ordered[: room.consumers]
    yield Table(
        columns,
        [_consumer(frame, one, room) for one in shown],
        _nothing(frame, Part.CONSUMERS, "There is no consumer."),
    )
    if more := len(ordered) - len(shown):
        yield Words(f"and {more:,} more", Tone.FAINT)


def _counts(room: Room) -> list[str]:
    flow = ["rate/s", "wait p95", "run p95", "oldest"] if room.is_wide else ["rate/s", "oldest"]
    return ["ready", "later", "keys", "flight", "dead", *flow]


def _consumer(frame: Frame, one: ConsumerStatus, room: Room) -> list[Cell]:
    had, tally = one.backlog, frame.lately.consumers.get(one.consumer.pk)
    dead = _count(had, "dead", Tone.BAD)
    times: list[Cell] = []
    if room.is_wide:
        times = [_p95(tally.waits if tally else None), _p95(tally.runs if tally else None)]
    cells: list[Cell] = [
        Words(one.path, Tone.TITLE),
        _ready(one),
        *(_count(had, name) for name in ("delayed", "blocked", "in_flight")),
        dead,
        rate(frame.rate(one.consumer)),
        *times,
        _brief(one.oldest_seconds),
    ]
    if room.is_wide:
        cells.append(Words(spark(frame.trend(one.consumer)), Tone.GOOD))
    return [*cells, state(one)]


def _ready(one: ConsumerStatus) -> Words:
    """Where it is too much to be counted, about how much is queued."""
    if not one.backlog.is_least("ready") or one.estimate is None:
        return _count(one.backlog, "ready")
    return Words(f"≈ {figures.compact(one.estimate)}")


def _count(had: Backlog, name: str, tone: Tone = Tone.PLAIN) -> Words:
    count, is_least = getattr(had, name), had.is_least(name)
    return Words(figures.counted(count, is_least=is_least), tone if count else Tone.FAINT)


def _p95(times: tuple[float, float, float] | None) -> str:
    return _brief(times[1] if times else None)


def _brief(seconds: float | None) -> str:
    is_long = seconds is not None and seconds >= MINUTE
    return figures.coarse(seconds or 0.0) if is_long else figures.duration(seconds)


def state(one: ConsumerStatus) -> Words:
    """The worst of it."""
    if one.is_unserved:
        return Words("not served", Tone.BAD)
    if one.paused_until:
        left = figures.coarse((one.paused_until - one.now).total_seconds())
        return Words(f"paused, {left}", Tone.WARN)
    held_back = [one.path in worker.circuits for worker in one.workers or ()]
    if any(held_back):
        return Words(f"held back, {sum(held_back)}/{len(held_back)}", Tone.WARN)
    if one.backlog.ready or one.backlog.in_flight:
        return Words("busy", Tone.GOOD)
    return Words("idle", Tone.FAINT)


def nodes(frame: Frame, room: Room) -> Iterator[Block]:
    columns = [
        Column("node"),
        Column("kind"),
        *(Column(name, is_number=True) for name in ("up", "beat", "held", "done")),
        Column("does now", may_shrink=True),
    ]
    shown = frame.workers[: room.nodes]
    yield Words("")
    yield Table(
        columns, [_node(one) for one in shown], _nothing(frame, Part.WORKERS, "No node is at work.")
    )
    if more := len(frame.workers) - len(shown):
        yield Words(f"and {more:,} more", Tone.FAINT)


def _node(one: Worker) -> list[Cell]:
    return [
        Words(one.node.name, Tone.TITLE),
        one.node.kind,
        one.uptime,
        one.silence_text,
        f"{one.held:,}",
        one.done or figures.NOTHING,
        does(one),
    ]


def does(one: Worker) -> Words:
    """Of which consumers it runs how many jobs, the longest first, unless it is not well."""
    if not one.is_healthy:
        return Words(str(one.status), Tone.BAD)
    if not one.running:
        return Words("nothing", Tone.FAINT)
    counts = Counter(run.consumer for run in one.running)
    longest = {run.consumer: run.time for run in reversed(one.running)}
    told = [f"{place} × {counts[place]}, {longest[place]}" for place in counts]
    return Words("; ".join(told), Tone.GOOD)


def _nothing(frame: Frame, part: Part, otherwise: str) -> str:
    """What an empty table says."""
    return "It is not known." if part in frame.missed else otherwise


def missed(frame: Frame) -> Iterator[Block]:
    if frame.missed:
        names = ", ".join(str(part.label) for part in frame.missed)
        late = "" if frame.error else " in time"
        yield Words(f"The database did not tell{late}: {names}.", Tone.WARN)
    if frame.error:
        yield Words(frame.error, Tone.BAD)


def problems(frame: Frame, room: Room) -> Iterator[Block]:
    yield from missed(frame)
    yield Words("")
    if not (frame.findings or frame.missed):
        yield Words("Nothing needs attention.", Tone.GOOD)
    shown = frame.findings[: room.problems]
    for one in shown:
        mark, tone = ("!!", Tone.BAD) if one.is_bad else (" !", Tone.WARN)
        yield Words(f"{mark} {one.text}", tone)
    if more := len(frame.findings) - len(shown):
        yield Words(f"   and {more:,} more problems", Tone.FAINT)


def rate(by_second: float) -> str:
    return f"{by_second:,.0f}" if by_second >= 100 or not by_second else f"{by_second:,.1f}"


def spark(totals: Sequence[float]) -> str:
    highest = max(totals, default=0) or 1
    steps = len(BARS) - 1
    return "".join(BARS[min(steps, -int(-total / highest * steps // 1))] for total in totals)
