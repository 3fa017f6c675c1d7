"""Show consumers, nodes and problems live, as htop shows processes.

On a terminal it draws a screen: q quits, ? shows the other keys. Without a terminal, or without
the package rich, it prints a frame at every interval, with --json as a line of JSON.
"""

import itertools
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from pulljobs.diagnosis import times
from pulljobs.management import lookups
from pulljobs.management.output import Output
from pulljobs.management.output_blocks import Block, title
from pulljobs.management.parsing import number_between, whole_number
from pulljobs.management.subcommands import EXIT_OK, EXIT_PROBLEM, CommandResult
from pulljobs.management.top import json_content, tables
from pulljobs.management.top.frame import TopFrame, ViewSize, read_frame
from pulljobs.management.top.tables import SORTS

DEFAULT_INTERVAL: Final = 2.0
MIN_INTERVAL, MAX_INTERVAL = 0.1, 3600.0


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "only", nargs="*", metavar="CHANNEL[/CONSUMER]", help="show only these consumers"
    )
    parser.add_argument(
        "--interval",
        type=number_between("seconds", MIN_INTERVAL, MAX_INTERVAL), default=DEFAULT_INTERVAL,
        metavar="SECONDS",
        help=f"time between two frames ({DEFAULT_INTERVAL:g})",
    )  # fmt: skip
    parser.add_argument("--once", action="store_true", help="print a single frame")
    parser.add_argument(
        "--frames",
        type=whole_number(1),
        metavar="COUNT",
        help="print this many frames, and never draw a screen",
    )
    parser.add_argument(
        "--sort", choices=list(SORTS), default="need",
        help="order of consumers: unserved and longest queues first (need), or by a column",
    )  # fmt: skip


def handle(output: Output, **options: Any) -> Iterator[CommandResult]:
    select_consumers = partial(lookups.find_consumers, options["only"]) if options["only"] else None
    read = partial(read_frame, select_consumers)
    count = 1 if options["once"] else options["frames"]
    if output.is_rich and count is None and output.stream.isatty():
        from pulljobs.management.top.screen import LiveScreen

        LiveScreen(output.console, read, options["interval"], options["sort"]).run()
        return
    yield from _frames(read, count, options["interval"], options["sort"])


def _frames(
    read: Callable[[], TopFrame], count: int | None, interval: float, sort: str
) -> Iterator[CommandResult]:
    due = time.monotonic()
    for number in itertools.count(1):
        frame = read()
        blocks = list(_blocks(frame, sort, is_first=number == 1))
        yield CommandResult(
            json_content.frame_content(frame), blocks, EXIT_PROBLEM if frame.error else EXIT_OK
        )
        if number == count:
            return
        due = max(due + interval, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _blocks(frame: TopFrame, sort: str, *, is_first: bool) -> Iterator[Block]:
    if not is_first:
        yield ""
    yield title(f"pulljobs top, {times.format_time(frame.at)}")
    if not frame.failure:
        yield f"{tables.headline(frame)}; {tables.throughput(frame)}"
        yield ""
    yield from tables.render_frame(frame, sort, ViewSize())
