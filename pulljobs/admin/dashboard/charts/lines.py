"""Lines over time; where nothing is known they break."""

from collections.abc import Iterator, Sequence

from django.utils.safestring import SafeString

from pulljobs.admin.dashboard.charts import frame, svg
from pulljobs.admin.dashboard.charts.frame import Frame


def draw(around: Frame, lines: Sequence[tuple[str, Sequence[float | None]]]) -> SafeString:
    """Each line has a class and a value for each column."""
    outer, shapes = frame.begin(around)
    for name, values in lines:
        for path in _paths(around, values):
            svg.add(shapes, "path", class_=f"line {name}", d=path)
    return frame.finish(outer, around)


def _paths(around: Frame, values: Sequence[float | None]) -> Iterator[str]:
    """A value between two gaps is a dot: a line too short to see, with round ends."""
    for run in _runs(values):
        points = [f"{around.left(at + 0.5):.2f} {around.top(value):.2f}" for at, value in run]
        yield f"M{' L'.join(points)}" if len(points) > 1 else f"M{points[0]} h0.01"


def _runs(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    run: list[tuple[int, float]] = []
    for at, value in enumerate(values):
        if value is not None:
            run.append((at, value))
        elif run:
            yield run
            run = []
    if run:
        yield run
