"""Progress of a census, shown on standard error: standard output is for the result."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from example_project.census import runs
from example_project.census.models import Run

LOOK_SECONDS: Final = 0.25
"""Interval at which the jobs are counted."""
LINE_SECONDS: Final = 5.0
"""Interval of lines where there is no terminal."""

Show = Callable[[int], None]


def follow(run: Run, at_each_look: Callable[[], None]) -> None:
    """Show the progress of a census until all of its jobs are settled.

    `at_each_look` is called each time that the jobs are counted.
    """
    with _shown(Console(stderr=True), run.jobs) as show:
        while left := runs.unsettled(run):
            show(run.jobs - left)
            at_each_look()
            time.sleep(LOOK_SECONDS)
        show(run.jobs)


@contextmanager
def _shown(console: Console, total: int) -> Iterator[Show]:
    if not console.is_terminal:
        yield _lines(console, total)
        return
    columns = (TextColumn("jobs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task("jobs", total=total)
        yield lambda settled: progress.update(bar, completed=settled)


def _lines(console: Console, total: int) -> Show:
    """Return a function that prints the number of settled jobs as a line, every few seconds."""
    last = -LINE_SECONDS

    def show(settled: int) -> None:
        nonlocal last
        if settled == total or time.monotonic() - last >= LINE_SECONDS:
            last = time.monotonic()
            console.print(f"{settled:,} of {total:,} jobs settled", highlight=False)

    return show
