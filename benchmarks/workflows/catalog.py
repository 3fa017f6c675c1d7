"""Libraries for durable workflows on PostgreSQL, with their pinned versions."""

from dataclasses import dataclass
from typing import Final

from benchmarks.peers.peer import Installable, Runtime


@dataclass(frozen=True, kw_only=True)
class WorkflowPeer(Installable):
    """Library to compare with, and what its adapter can do."""

    commits: str
    """Rows that commit together with the effect of a step."""
    settings: str
    """Settings that differ from the defaults."""
    sleeps: bool = True
    """True if a sleeping run is a row that no process holds."""
    suspends: bool = True
    """True if a run can wait for a signal and sleep, which bare statements cannot."""
    batch: str = ""
    """Statement that returns, after the callback, members a second and its delay in seconds."""


CALLED_BACK: Final = """
SELECT
    settled.members / extract(epoch FROM settled.last - settled.first),
    extract(epoch FROM message.published_at - settled.last)
FROM pulljobs_message AS message
JOIN pulljobs_channel AS channel ON channel.id = channel_id AND channel.name = 'callbacks'
CROSS JOIN (
    SELECT count(*) AS members, min(settled_at) AS first, max(settled_at) AS last
    FROM pulljobs_archived_job
) AS settled
"""

PEERS: Final = (
    WorkflowPeer(
        name="pulljobs",
        runtime=Runtime.OURS,
        adapter="pulljobs_workflows.py",
        commits="step",
        settings="8 threads a process",
        batch=CALLED_BACK,
    ),
    WorkflowPeer(
        name="pulljobs-raw",
        runtime=Runtime.OURS,
        adapter="raw_workflows.py",
        commits="step",
        settings="the statements alone by psycopg, prepared, 8 threads a process",
        sleeps=False,
        suspends=False,
    ),
    WorkflowPeer(
        name="dbos",
        runtime=Runtime.PYTHON,
        packages=("dbos==3.4.0", "psycopg[binary]"),
        adapter="dbos_workflows.py",
        commits="step, by a datasource",
        settings="queue of 32 runs a process, polls 20 ms, READ COMMITTED",
        sleeps=False,
    ),
    WorkflowPeer(
        name="absurd",
        runtime=Runtime.PYTHON,
        packages=("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]"),
        adapter="absurd_workflows.py",
        commits="step, on the worker's own connection",
        settings="one run a process, polls 5 ms",
    ),
    WorkflowPeer(
        name="awa",
        runtime=Runtime.PYTHON,
        packages=("awa-pg==0.6.9", "psycopg[binary]"),
        adapter="awa_workflows.py",
        commits="next job; it has no steps",
        settings="32 jobs a process, polls 20 ms",
    ),
)


def choose_peers(names: list[str] | None) -> list[WorkflowPeer]:
    """Return the named libraries, or all, in the order of this file. Exit for an unknown name."""
    known = {peer.name: peer for peer in PEERS}
    if unknown := set(names or ()) - known.keys():
        raise SystemExit(f"No peer {', '.join(unknown)}: choose from {', '.join(known)}.")
    return [peer for peer in PEERS if not names or peer.name in names]
