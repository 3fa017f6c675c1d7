"""The live view on a terminal, by rich: on a screen of its own, which goes when it ends."""

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
from pulljobs.management.top.frame import TopFrame
from pulljobs.management.top.tables import SORTS, WIDE, ViewSize

FASTEST, SLOWEST, STEP = 0.5, 60.0, 2.0
HELP: Final = {
    "q": "quit, as Ctrl-C does",
    "space": "hold this frame, and go on",
    "s": "the next order: " + ", ".join(SORTS),
    "+ -": "draw more or less often",
    "r": "draw now",
    "h ?": "this help, and back",
}
AROUND: Final = 7
"""Lines that are no rows: the head, the heads of tables, what lies between."""


def _fitting(count: int, lines: int) -> tuple[int, int]:
    """How many of them are shown, and on how many lines: one may say that there are more."""
    return (count, max(1, count)) if count <= lines else (max(1, lines - 1), lines)


class Screen:
    def __init__(
        self, console: Console, read: Callable[[], TopFrame], every: float, sort: str
    ) -> None:
        self._console, self._read = console, read
        self._every, self._sort = every, sort
        self._is_held = self._helps = self._is_over = False
        self._frame = read()
        self._read_at = time.monotonic()
        self._acts: Mapping[str, Callable[[], None]] = {
            "q": self._quit,
            " ": self._hold,
            "s": self._sort_by_next,
            "+": self._hurry,
            "=": self._hurry,
            "-": self._linger,
            "r": self._look,
            "h": self._help,
            "?": self._help,
        }

    def run(self) -> None:
        """Until somebody quits; a stop by Ctrl-Z leaves the terminal to others meanwhile."""
        while not self._is_over:
            if self._drawn() == keyboard.SUSPEND:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _drawn(self) -> str:
        with (
            keyboard.opened() as pressed,
            Live(console=self._console, screen=True, auto_refresh=False) as live,
        ):
            while not self._is_over:
                live.update(self._page(), refresh=True)
                if keyboard.SUSPEND in (key := pressed.wait(self._patience)):
                    return keyboard.SUSPEND
                self._obey(key)
                if not (self._is_over or self._patience):
                    self._frame, self._read_at = self._read(), time.monotonic()
        return ""

    @property
    def _patience(self) -> float:
        """Seconds until the next look."""
        if self._is_held:
            return SLOWEST
        return max(0.0, self._read_at + self._every - time.monotonic())

    def _obey(self, pressed: str) -> None:
        for key in pressed.lower():
            if (act := self._acts.get(key)) is not None:
                act()

    def _quit(self) -> None:
        self._is_over = True

    def _hold(self) -> None:
        self._is_held = not self._is_held

    def _help(self) -> None:
        self._helps = not self._helps

    def _look(self) -> None:
        self._read_at = -SLOWEST

    def _sort_by_next(self) -> None:
        order = list(SORTS)
        self._sort = order[(order.index(self._sort) + 1) % len(order)]

    def _hurry(self) -> None:
        self._every = max(FASTEST, self._every / STEP)

    def _linger(self) -> None:
        self._every = min(SLOWEST, self._every * STEP)

    def _page(self) -> RenderableType:
        if self._helps:
            return Group(self._head(), Text(), *self._keys())
        room = self._room()
        body = tables.of(self._frame, self._sort, room)
        return Group(self._head(), Text(), *rich_output.drawn(body, folds=False))

    def _room(self) -> ViewSize:
        """Problems and nodes get a few rows, consumers all the others."""
        width, height = self._console.size
        rows = max(4, height - AROUND - len(list(tables.missed(self._frame))))
        problems = _fitting(len(self._frame.findings), max(1, rows // 4))
        nodes = _fitting(len(self._frame.workers), max(1, rows // 4))
        left = rows - sum(lines for _rows, lines in (problems, nodes))
        consumers = _fitting(len(self._frame.standings), max(1, left))
        return ViewSize(consumers[0], nodes[0], problems[0], width >= WIDE)

    def _head(self) -> RenderableType:
        head = RichTable.grid(expand=True)
        head.add_column(no_wrap=True)
        head.add_column(justify="right", no_wrap=True)
        at = f"{self._frame.at.astimezone(UTC):%H:%M:%S} UTC"
        held = (
            Text("held", "black on yellow") if self._is_held else Text(f"every {self._every:g} s")
        )
        left = Text.assemble(("pulljobs top", "bold cyan"), f"  {at}  ", held, f"  by {self._sort}")
        head.add_row(left, Text("q quit  s order  ? help", "bright_black"))
        if not self._frame.failure:
            head.add_row(
                tables.headline(self._frame), Text(tables.throughput(self._frame), "green")
            )
        return head

    def _keys(self) -> Iterator[Text]:
        for key, does in HELP.items():
            yield Text.assemble((f"{key:>7}  ", "bold"), does)
