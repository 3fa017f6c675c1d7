"""Capacity model: the processors, commits and bytes of disk that a rate of jobs takes.

It adds up the costs of a job and of each byte of its payload. `python -m benchmarks capacity`
measures these costs, and compares the predictions of the model with other runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from typing import Final, NamedTuple

MICRO: Final = 1e-6
DAY: Final = 86_400
USED: Final = 0.7
"""Share of a processor or of a disk to plan with. Waiting times rise steeply above it."""
MOST: Final = 80_000.0
"""Highest rate of one server that was measured, in jobs a second. No estimate goes beyond it."""
BESIDE: Final = 0.25
"""Share of a server's processors above which the jobs should not share it with other data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of a job on one machine. Names that end in `_us` are microseconds of a processor."""

    publish_us: float
    """Time of the database server for a message that is published in a commit of its own."""
    batch_us: float
    """Time of the database server for a message that is published in a large batch."""
    run_us: float
    """Time of the database server to claim and settle a job."""
    payload_us: float
    """Time of the database server for a kilobyte of payload."""
    worker_us: float
    """Time of the worker for a job whose handler does nothing."""
    wal_bytes: float
    """Bytes of WAL from publish to archive, besides the payload."""
    row_bytes: float
    """Bytes on disk of a settled job, besides its payload: message, archive row and indexes."""
    commits: float
    """Commits a second of one connection."""


MEASURED: Final = Costs(
    publish_us=370,
    batch_us=20,
    run_us=24,
    payload_us=15,
    worker_us=18,
    wal_bytes=1_300,
    row_bytes=400,
    commits=2_200,
)
"""Costs that were measured on the machine that the capacity guide describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Jobs to plan for. A message with several consumers counts as that many jobs."""

    rate: float
    """Jobs a second."""
    payload: int
    """Bytes of a payload."""
    batch: int = 1
    """Messages that are published in one transaction."""
    handler_seconds: float = 0.0
    """Run time of a handler."""
    retention: timedelta = timedelta(days=30)
    """Time for which messages and the archive are kept."""

    def server_seconds(self, costs: Costs) -> float:
        """Return the processor time of the database server for one job, in seconds."""
        return self.publish_seconds(costs) + MICRO * costs.run_us

    def publish_seconds(self, costs: Costs) -> float:
        """Return the processor time of the database server to publish one message, in seconds."""
        alone = costs.publish_us - costs.batch_us
        payload = costs.payload_us * self.payload / 1_000
        return MICRO * (costs.batch_us + alone / self.batch + payload)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Database server to plan with."""

    cores: int
    disk_bytes: float | None = None
    """Bytes for the tables of pulljobs. None: any number."""
    written_per_second: float | None = None
    """Bytes a second that the disk takes of WAL. None: any number."""


class Needs(NamedTuple):
    """Resources that a load takes: processors, commits, and bytes of WAL and of disk."""

    server_cores: float
    worker_cores: float
    threads: float
    """Handlers that run at a time, on average."""
    commits: float
    """Commits a second of publishers."""
    publishers: int
    """Connections that publish at a time."""
    wal_per_second: float
    """Bytes of WAL a second."""
    disk_per_day: float
    """Bytes by which messages and the archive grow in a day."""
    disk_bytes: float
    """Bytes of messages and the archive, once their retention has passed."""


def estimate(load: Load, costs: Costs) -> Needs:
    """Return the processors, commits and bytes that the load takes."""
    commits = load.rate / load.batch
    daily = load.rate * DAY * (costs.row_bytes + load.payload)
    return Needs(
        server_cores=load.rate * load.server_seconds(costs),
        worker_cores=load.rate * MICRO * costs.worker_us,
        threads=load.rate * load.handler_seconds,
        commits=commits,
        publishers=ceil(commits / (USED * costs.commits)),
        wal_per_second=load.rate * (costs.wal_bytes + load.payload),
        disk_per_day=daily,
        disk_bytes=daily * load.retention.total_seconds() / DAY,
    )


def highest_rate(load: Load, costs: Costs, machine: Machine) -> float:
    """Return the highest rate of jobs like those of `load` that one server carries, per second."""
    rates = [MOST, USED * machine.cores / load.server_seconds(costs)]
    if machine.written_per_second is not None:
        rates.append(USED * machine.written_per_second / (costs.wal_bytes + load.payload))
    return min(rates)


def count_processes(needs: Needs, concurrency: int) -> int:
    """Return the number of worker processes that carry the load.

    A process runs Python code on one processor at a time, in `concurrency` threads.
    """
    return max(ceil(needs.worker_cores / USED), ceil(needs.threads / concurrency), 1)


def count_servers(load: Load, costs: Costs, machine: Machine) -> int:
    """Return the number of databases, each on a server like `machine`, that carry the load."""
    return ceil(load.rate / highest_rate(load, costs, machine))


def next_steps(load: Load, costs: Costs, machine: Machine) -> Iterator[str]:
    """Yield advice to the operator on what the load needs, as sentences, the cheapest first."""
    needs = estimate(load, costs)
    if load.batch == 1 and needs.publishers > 1:
        yield (
            f"Publish in batches with publish_many, or from {needs.publishers} connections: one "
            f"commits {costs.commits:,.0f} times a second."
        )
    servers = count_servers(load, costs, machine)
    if servers > 1:
        yield f"Spread the channels over {servers} databases, each on a server of its own."
    elif needs.server_cores > BESIDE * machine.cores:
        yield "Keep the jobs in a database of their own, on a server of its own."
    held = needs.disk_bytes / servers
    if machine.disk_bytes is not None and held > USED * machine.disk_bytes:
        days = USED * machine.disk_bytes * servers / needs.disk_per_day
        yield f"Keep {days:,.1f} days of history, and export older days to the lake: RETENTION."
