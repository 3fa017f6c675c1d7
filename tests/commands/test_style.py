"""Progress of long work, and the choice of plain or rich output."""

import sys
from io import StringIO

import pytest

from pulljobs import progress
from pulljobs.management import plain_output
from pulljobs.management.output import Output
from pulljobs.management.output_blocks import (
    Block,
    Column,
    FactsBlock,
    StyledText,
    TableBlock,
    Tone,
    title,
)
from pulljobs.management.subcommands import CommandResult
from pulljobs.progress import Progress, format_line


class SmartTerminal(StringIO):
    """Text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_shows_the_rate_and_the_remaining_time() -> None:
    assert format_line("verify", 0, 400, "rows", 2) == "verify: 0 of 400 rows"
    assert format_line("verify", 100, 400, "rows", 2) == (
        "verify: 100 of 400 rows, 50 rows/s, 6 s to go"
    )
    assert format_line("reap", 5000, None, "jobs", 2) == "reap: 5,000 jobs, 2,500 jobs/s"


def test_progress_is_redrawn_on_a_terminal_and_erased_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(progress, "MOVE_SECONDS", 0.0)
    screen = SmartTerminal()
    with progress.show_progress("reap", "jobs", stream=screen) as reaping:
        reaping.advance(3)
    assert "\r\x1b[Kreap: 3 jobs" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize("environ", [{"TERM": "dumb"}, {"NO_COLOR": "1"}, {"TERM": ""}])
def test_progress_without_a_terminal_is_a_line_at_intervals(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"TERM": "xterm", **environ}.items():
        monkeypatch.setenv(name, value)
    screen = SmartTerminal()
    reaping = Progress("reap", "jobs", stream=screen)
    reaping.advance(3)
    assert screen.getvalue() == "", "a line before it is due"
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    reaping.advance(3)
    reaping.end()
    assert screen.getvalue().startswith("reap: 6 jobs, ")
    assert screen.getvalue().count("\n") == 1
    assert "\x1b" not in screen.getvalue()


BLOCKS: list[Block] = [
    title("Consumers"),
    TableBlock([Column("consumer"), Column("ready", is_number=True)], [["a", "12"], ["bcd", "7"]]),
    FactsBlock([("lease", StyledText("30 s", Tone.GOOD)), ("error", StyledText("one\ntwo"))]),
]


def test_plain_tables_are_aligned() -> None:
    assert list(plain_output.render_lines(BLOCKS)) == [
        "Consumers",
        "CONSUMER  READY",
        "a            12",
        "bcd           7",
        "lease  30 s",
        "error  one",
        "       two",
    ]


def test_only_terminals_with_colours_get_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Output(SmartTerminal(), as_json=False).is_rich
    assert not Output(SmartTerminal(), as_json=True).is_rich
    assert not Output(SmartTerminal(), as_json=False, coloured=False).is_rich
    assert not Output(StringIO(), as_json=False).is_rich
    assert Output(StringIO(), as_json=False, coloured=True).is_rich


def test_output_without_rich_is_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich", None)
    screen = SmartTerminal()
    Output(screen, as_json=False, coloured=True).show(CommandResult({}, BLOCKS))
    assert screen.getvalue().splitlines() == list(plain_output.render_lines(BLOCKS))
