"""Tables of docs/peers.md, between its comments `measured` and `end`, and the file of its chart."""

import re
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from benchmarks.peers import chart, summary
from benchmarks.peers.catalog import PEERS
from benchmarks.peers.peer import Peer
from benchmarks.peers.snapshot import AFTER, WHILE
from benchmarks.peers.summary import Content

PAGE: Final = "peers.md"
CHART: Final = "peers.svg"
HELD: Final = "held"
PICTURE: Final = "picture"
MARKED: Final = re.compile(r"(<!-- measured: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
ERROR: Final = 200


def write_page(content: Content, folder: Path | None, wanted: Collection[str]) -> None:
    """Write the sections into the page of a folder, or print them if there is no folder."""
    if folder is None:
        sys.stdout.write(fill_sections(_marks(wanted), content, wanted))
        return
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / PAGE
    text = page.read_text() if page.exists() else _marks(wanted)
    page.write_text(fill_sections(text, content, wanted))
    if PICTURE in wanted:
        (folder / CHART).write_text(chart.draw_svg(content))


def fill_sections(text: str, content: Content, wanted: Collection[str]) -> str:
    """Replace the wanted sections of a page and leave the others as they are."""

    def section(mark: re.Match[str]) -> str:
        name = mark[2]
        return f"{mark[1]}\n{SECTIONS[name](content)}\n\n{mark[3]}" if name in wanted else mark[0]

    return MARKED.sub(section, text)


def _marks(names: Collection[str]) -> str:
    return "\n".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in names)


def about(content: Content) -> str:
    """Return the date, the sizes and the machine."""
    sizes = content["sizes"]
    facts = ", ".join(f"{name} {value}" for name, value in content["machine"].items())
    return (
        f"Measured on {content['at']}: {sizes['rounds']} rounds, {sizes['jobs']:,} jobs queued for"
        f" each drain, each drain measured for at most {sizes['drain_seconds']:g} s."
        f"\n\nThe machine: {facts}."
    )


def picture(_content: Content) -> str:
    """Return the Markdown of the image of the chart."""
    return f"![Dots on logarithmic axes: jobs a second and latency of each queue]({CHART})"


def rates(content: Content) -> str:
    """Return the table of rates."""
    measures = {
        "publish, one by one": "publish one",
        "publish, many": "publish many",
        "no-op, 1 process": "noop x 1",
        "no-op, 4 processes": "noop x 4",
        "1 ms, 1 process": "1ms x 1",
        "1 ms, 4 processes": "1ms x 4",
    }
    rows = [
        [peer, *(summary.rate(content, peer, measure) for measure in measures.values())]
        for peer in ran(content)
    ]
    return table(["peer", *measures], rows)


def held(content: Content) -> str:
    """Return the table of the loads while another session held a snapshot."""
    head = ["peer", "offered, jobs/s", "for, s", "published", "dequeued"]
    head += ["p99 without, ms", "p99 at first, ms", "p99 at the end, ms", "growth"]
    rows = [
        [peer, *_load(content, peer), summary.rate(content, peer, AFTER)] for peer in ran(content)
    ]
    machine = content["machine"]
    return (
        f"Measured on {content['at']}, with {machine['cores']} cores and a load of"
        f" {machine['load at start']} at the start.\n\n"
        + table([*head, "no-op afterwards, jobs/s"], rows)
    )


def _load(content: Content, peer: str) -> list[str]:
    """Return a queue's row in the table of loads under a snapshot. The growth is that of p99."""
    loads = summary.rounds(content, peer, WHILE)
    if not loads:
        # A record that is older than this measure has drains without a load.
        asked = content["sizes"]["held_rate"], content["sizes"]["held_seconds"]
        return [*map(summary.number, asked), *[summary.missing(content, peer, WHILE)] * 6]
    [load] = loads
    growth, mark = load["p99_growth"], summary.MARK if summary.is_late(loads) else ""
    return [
        *(summary.number(load[name]) for name in ("offered", "seconds")),
        *(f"{load[f'{name}_share'] * 100:.1f} %" for name in ("published", "dequeued")),
        *(_waited(load[f"p99_{name}"]) for name in ("without", "first")),
        _waited(load["p99_last"]) + mark,
        "" if growth is None else summary.number(growth),
    ]


def _waited(seconds: float | None) -> str:
    return "none started" if seconds is None else summary.number(seconds * summary.MILLI)


def costs(content: Content) -> str:
    """Return the table of CPU and WAL for each job."""
    rows = [
        [
            peer,
            summary.microseconds(content, peer, "noop x 1", "worker_cpu"),
            summary.microseconds(content, peer, "noop x 1", "server_cpu"),
            summary.wal(content, peer),
        ]
        for peer in ran(content)
    ]
    return table(["peer", "worker CPU, µs a job", "server CPU, µs a job", "WAL, bytes a job"], rows)


def latencies(content: Content) -> str:
    """Return the table of latencies."""
    rows = [
        [
            peer,
            *(
                summary.milliseconds(content, peer, f"latency at {rate}", figure)
                for rate in (10, 500)
                for figure in ("p50", "p99")
            ),
        ]
        for peer in ran(content)
    ]
    head = ["p50 at 10/s", "p99 at 10/s", "p50 at 500/s", "p99 at 500/s"]
    return table(["peer", *head], rows)


def keeps(content: Content) -> str:
    """Return the table of what each compared queue guarantees and stores."""
    head = ["peer", "rows of a successful job", "claim while it runs", "acks", "retries", "fan-out"]
    rows = [
        [peer.name, peer.history, peer.holds, peer.acks, peer.retries, peer.fan_out]
        for peer in _of(content)
    ]
    return table(head, rows)


def settings(content: Content) -> str:
    """Return the table of versions and settings."""
    rows = [[peer.name, _versions(content, peer.name), peer.settings] for peer in _of(content)]
    return table(["peer", "versions", "settings"], rows)


def errors(content: Content) -> str:
    """Return a list of the compared queues that did not run and the measures that failed."""
    lines = [
        f"- {name}: not run: {_short(entry['error'])}"
        for name, entry in content["peers"].items()
        if "error" in entry
    ]
    lines += [
        f"- {name}, {measure}: {_short(error)}"
        for name, entry in content["peers"].items()
        for measure, error in entry["errors"].items()
    ]
    return "\n".join(lines) or "All peers ran, and nothing failed."


SECTIONS: Final[dict[str, Callable[[Content], str]]] = {
    "about": about,
    PICTURE: picture,
    "rates": rates,
    "latencies": latencies,
    HELD: held,
    "costs": costs,
    "keeps": keeps,
    "settings": settings,
    "errors": errors,
}


def ran(content: Content) -> list[str]:
    """Return the names of the compared queues that ran."""
    return [name for name, entry in content["peers"].items() if "error" not in entry]


def _of(content: Content) -> list[Peer]:
    return [peer for peer in PEERS if peer.name in content["peers"]]


def _versions(content: Content, peer: str) -> str:
    versions = content["peers"][peer].get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _short(error: str) -> str:
    return " ".join(error.split())[-ERROR:].replace("|", "/")


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
