"""Live view of `pulljobs top` on a terminal, drawn with the package rich.

It uses the alternate screen, so that the shell's output is back when it ends.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from pulljobs.management import rich_output
from pulljobs.management.top import keyboard, tables
from pulljobs.management.top.frame import TopFrame, ViewSize
from pulljobs.management.top.tables import SORTS, WIDE

FASTEST, SLOWEST, STEP = 0.5, 60.0, 2.0
HELP: Final = {
    "q": "quit, as Ctrl-C does",
    "space": "pause, and continue",
    "s": "next order of consumers: " + ", ".join(SORTS),
    "+ -": "refresh more or less often",
    "r": "refresh now",
    "h ?": "show or hide this help",
}
OTHER_LINES: Final = 7
"""Lines without rows: the head, the headings of the tables, the space between them."""


def _fitting(count: int, lines: int) -> tuple[int, int]:
    """Return how many of `count` rows fit on `lines` lines, and how many lines they take.

    If not all fit, the last line is for the number of the others.
    """
    return (count, max(1, count)) if count <= lines else (max(1, lines - 1), lines)


class LiveScreen:
    """Screen that reads and draws a frame at each interval, and acts on pressed keys."""

    def __init__(
        self, console: Console, read: Callable[[], TopFrame], interval: float, sort: str
    ) -> None:
        self._console, self._read = console, read
        self._interval, self._sort = interval, sort
        self._is_held = self._shows_help = self._is_over = False
        self._frame = read()
        self._read_at = time.monotonic()
        self._actions: Mapping[str, Callable[[], None]] = {
            "q": self._quit,
            " ": self._hold,
            "s": self._sort_by_next,
            "+": self._hurry,
            "=": self._hurry,
            "-": self._slow_down,
            "r": self._refresh,
            "h": self._help,
            "?": self._help,
        }

    def run(self) -> None:
        """Draw frames until the user quits. Ctrl-Z restores the terminal and stops the process."""
        while not self._is_over:
            if self._draw_until_key() == keyboard.SUSPEND:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _draw_until_key(self) -> str:
        with (
            keyboard.open_keyboard() as pressed,
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            while not self._is_over:
                live.update(self._page(), refresh=True)
                if keyboard.SUSPEND in (key := pressed.wait(self._wait_seconds)):
                    return keyboard.SUSPEND
                self._obey(key)
                if not (self._is_over or self._wait_seconds):
                    self._refresh()
        return ""

    @property
    def _wait_seconds(self) -> float:
        """Seconds until the next frame is read, or 60 while the user has paused the view."""
        if self._is_held:
            return SLOWEST
        return max(0.0, self._read_at + self._interval - time.monotonic())

    def _obey(self, pressed: str) -> None:
        for key in pressed.lower():
            if (action := self._actions.get(key)) is not None:
                action()

    def _quit(self) -> None:
        self._is_over = True

    def _hold(self) -> None:
        self._is_held = not self._is_held

    def _help(self) -> None:
        self._shows_help = not self._shows_help

    def _refresh(self) -> None:
        self._frame, self._read_at = self._read(), time.monotonic()

    def _sort_by_next(self) -> None:
        order = list(SORTS)
        self._sort = order[(order.index(self._sort) + 1) % len(order)]

    def _hurry(self) -> None:
        self._interval = max(FASTEST, self._interval / STEP)

    def _slow_down(self) -> None:
        self._interval = min(SLOWEST, self._interval * STEP)

    def _page(self) -> RenderableType:
        if self._shows_help:
            return Group(self._head(), Text(), *self._help_lines())
        size = self._view_size()
        body = tables.render_frame(self._frame, self._sort, size)
        return Group(self._head(), Text(), *rich_output.render_blocks(body, folds=False))

    def _view_size(self) -> ViewSize:
        """Divide the terminal: up to a quarter of its rows for problems and for nodes each.

        Consumers get the rest.
        """
        width, height = self._console.size
        rows = max(4, height - OTHER_LINES - len(list(tables.render_missed(self._frame))))
        problems = _fitting(len(self._frame.problems), max(1, rows // 4))
        nodes = _fitting(len(self._frame.workers), max(1, rows // 4))
        left = rows - sum(lines for _rows, lines in (problems, nodes))
        consumers = _fitting(len(self._frame.consumers), max(1, left))
        return ViewSize(consumers[0], nodes[0], problems[0], width >= WIDE)

    def _head(self) -> RenderableType:
        head = RichTable.grid(expand=True)
        head.add_column(no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        at = f"{self._frame.at.astimezone(UTC):%H:%M:%S} UTC"
        held = (
            Text("held", "black on yellow")
            if self._is_held
            else Text(f"every {self._interval:g} s")
        )
        left = Text.assemble(("pulljobs top", "bold cyan"), f"  {at}  ", held, f"  by {self._sort}")
        head.add_row(left, Text("q quit  s order  ? help", "bright_black"))
        if not self._frame.failure:
            head.add_row(
                tables.headline(self._frame), Text(tables.throughput(self._frame), "green")
            )
        return head

    def _help_lines(self) -> Iterator[Text]:
        for key, meaning in HELP.items():
            yield Text.assemble((f"{key:>7}  ", "bold"), meaning)
