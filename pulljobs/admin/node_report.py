"""Tables on the page of a node, from the JSON report that it wrote with its last heartbeat.

A process of another release may have written the report, so any key may be missing.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from pulljobs import ids
from pulljobs.admin import formats
from pulljobs.admin.links import Links
from pulljobs.diagnosis import serving
from pulljobs.models import Node


class LoopRow(NamedTuple):
    """Loop of the process, such as a fetcher, as a row of the table of loops."""

    name: str
    is_alive: bool
    in_pass: str
    """Time since the current pass began, or "-" between passes."""
    last_pass: str
    """Time since the last pass ended."""
    failures: int
    """Number of passes in a row that ended with an error, at most 10."""


class RunRow(NamedTuple):
    """Job that ran at the heartbeat, as a row of the table of running jobs."""

    xid: str
    url: str | None
    """URL of the job's page, or None if the user can't open it."""
    consumer: str
    slot: str
    time: str
    ended: str


def read_report(links: Links, node: Node) -> dict[str, Any]:
    """Return the tables of a node's page, by name, from the report of its last heartbeat.

    A table for which the report has no key is empty.
    """
    report = node.report if isinstance(node.report, dict) else {}
    return {
        "counts": [(name, count) for name, count in report.items() if type(count) is int],
        "serves": [str(path) for path in report.get("serves") or ()],
        "held_back": serving.held_back(node),
        "loops": list(_loops(report.get("loops") or {})),
        "running": list(_runs(links, report.get("running") or ())),
    }


def _loops(loops: Mapping[str, Any]) -> Iterator[LoopRow]:
    for name, loop in sorted(loops.items()):
        seconds, since = loop.get("in_pass_seconds"), loop.get("last_pass_seconds")
        yield LoopRow(
            name,
            bool(loop.get("alive")),
            formats.NOTHING if seconds is None else formats.duration(seconds),
            formats.NOTHING if since is None else f"{formats.duration(since)} ago",
            int(loop.get("failures") or 0),
        )


def _runs(links: Links, running: Any) -> Iterator[RunRow]:
    for run in sorted(running, key=lambda run: -(run.get("seconds") or 0)):
        job_id = int(run["job"])
        yield RunRow(
            ids.encode(job_id),
            links.job(job_id),
            str(run.get("consumer") or formats.NOTHING),
            formats.NOTHING if run.get("slot") is None else str(run["slot"]),
            formats.duration(run.get("seconds")),
            str(run.get("ended") or ""),
        )
