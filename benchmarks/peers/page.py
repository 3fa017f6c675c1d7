"""The tables of docs/peers.md, written between its marks, and the chart beside it."""

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


def write(content: Content, folder: Path | None, wanted: Collection[str]) -> None:
    """Into the page of that folder, or a new one of tables only; without a folder to stdout."""
    if folder is None:
        sys.stdout.write(filled(_marks(wanted), content, wanted))
        return
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / PAGE
    text = page.read_text() if page.exists() else _marks(wanted)
    page.write_text(filled(text, content, wanted))
    if PICTURE in wanted:
        (folder / CHART).write_text(chart.svg(content))


def filled(text: str, content: Content, wanted: Collection[str]) -> str:
    """The other sections stay as they are."""

    def section(mark: re.Match[str]) -> str:
        name = mark[2]
        return f"{mark[1]}\n{SECTIONS[name](content)}\n\n{mark[3]}" if name in wanted else mark[0]

    return MARKED.sub(section, text)


def _marks(names: Collection[str]) -> str:
    return "\n".join(f"<!-- measured: {name} -->\n<!-- end -->\n" for name in names)


def about(content: Content) -> str:
    sizes = content["sizes"]
    facts = ", ".join(f"{name} {value}" for name, value in content["machine"].items())
    return (
        f"Measured on {content['at']}: {sizes['rounds']} rounds, {sizes['jobs']:,} jobs queued for"
        f" each drain, watched for {sizes['drain_seconds']:g} s at the most."
        f"\n\nThe machine: {facts}."
    )


def picture(_content: Content) -> str:
    return f"![Dots on logarithmic axes: jobs a second and latency of each queue]({CHART})"


def rates(content: Content) -> str:
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
    """Growth is of the p99, from without a snapshot to the end."""
    found = summary.rounds(content, peer, WHILE)
    if not found:
        # A record from before there was this measure has drains all the same.
        asked = content["sizes"]["held_rate"], content["sizes"]["held_seconds"]
        return [*map(summary.number, asked), *[summary.missing(content, peer, WHILE)] * 6]
    [one] = found
    growth, mark = one["p99_growth"], summary.MARK if summary.late(found) else ""
    return [
        *(summary.number(one[name]) for name in ("offered", "seconds")),
        *(f"{one[f'{name}_share'] * 100:.1f} %" for name in ("published", "dequeued")),
        *(_waited(one[f"p99_{name}"]) for name in ("without", "first")),
        _waited(one["p99_last"]) + mark,
        "" if growth is None else summary.number(growth),
    ]


def _waited(seconds: float | None) -> str:
    return "none started" if seconds is None else summary.number(seconds * summary.MILLI)


def costs(content: Content) -> str:
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
    head = ["peer", "of a job that went well", "while it runs", "acks", "retries", "fan-out"]
    rows = [
        [peer.name, peer.history, peer.holds, peer.acks, peer.retries, peer.fan_out]
        for peer in _of(content)
    ]
    return table(head, rows)


def settings(content: Content) -> str:
    rows = [[peer.name, _versions(content, peer.name), peer.settings] for peer in _of(content)]
    return table(["peer", "versions", "set up with"], rows)


def errors(content: Content) -> str:
    """Of peers that did not run, and of measures that did not work."""
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
    return "\n".join(lines) or "Everybody ran, and nothing failed."


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
    return [name for name, entry in content["peers"].items() if "error" not in entry]


def _of(content: Content) -> list[Peer]:
    return [peer for peer in PEERS if peer.name in content["peers"]]


def _versions(content: Content, peer: str) -> str:
    versions = content["peers"][peer].get("versions", {})
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _short(error: str) -> str:
    return " ".join(error.split())[-ERROR:].replace("|", "/")


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
