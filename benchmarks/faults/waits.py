"""Kinds of faults that test waits and retry counts, and record the jobs and processes concerned.

`python -m benchmarks faults --rounds N` runs them one after the other (`rounds`).
"""

import json
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from benchmarks.faults.history import CLAIMED, FROZE, LOCKED, WORKED, Line, read_file
from benchmarks.faults.processes import ROLES, Process
from benchmarks.faults.proxy import LOST_SECONDS, PATIENCE_SECONDS, STALL_SECONDS
from benchmarks.faults.roles.endings import BASE_EXCEPTIONS, HELD_LEASES, HOLD
from benchmarks.faults.server import wait_for
from benchmarks.faults.targets import Targets

LOCKED_LEASES: Final = 4
"""Lease durations for which rows stay locked while other faults go on."""
HELD_JOBS: Final = (
    "SELECT id FROM pulljobs_job WHERE state = 'INFLIGHT' LIMIT 3 FOR UPDATE SKIP LOCKED"
)
QUEUED_JOBS: Final = (
    "SELECT id FROM pulljobs_job WHERE state = 'QUEUED' LIMIT 1 FOR UPDATE SKIP LOCKED"
)
HELD_LEASES_OF: Final = "SELECT job_ids FROM pulljobs_lease LIMIT 2 FOR UPDATE SKIP LOCKED"
OPEN_TRANSACTIONS: Final = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_xid IS NOT NULL"
    " AND state_change < clock_timestamp() - interval '0.5 s'"
)
STALLS: Final = 5
BETWEEN_STALLS: Final = STALL_SECONDS + PATIENCE_SECONDS
"""Least time between two stalls, each of which is over by then."""
BETWEEN_ERRORS: Final = 0.3
"""Seconds between jobs that fail, so that others succeed and no consumer is held back."""
FROZEN_LEASES: Final = 2.0
"""Lease durations for which an HTTP client is frozen."""
LONG_JOBS: Final = 4
LONG_SECONDS: Final = 1.5
"""Time of jobs that are ordered so that a fault meets them while they run."""
SETTLED_SECONDS: Final = 1.0
"""Seconds after a kill, when a transaction that is still open belongs to the lost worker."""
LONG_STEPS: Final = 5
"""Number of notes "still working" that only handlers of long jobs write."""
RECENT_SECONDS: Final = 0.2
FIRST_SECOND: Final = 0.9
"""Longest time in seconds from a claim to the loss of its worker."""


def lock_rows(targets: Targets) -> None:
    """Keep some jobs and leases locked in another session, for many lease durations."""
    plan = targets.plan
    seconds = plan.locked if plan.rounds else LOCKED_LEASES * plan.lease_duration
    if plan.rounds:
        targets.processes.order(LONG_JOBS, seconds=LONG_SECONDS, end="well")
        time.sleep(LONG_SECONDS / 2)
    with targets.superuser() as connection, connection.transaction():
        since = time.monotonic()
        jobs = {row[0] for held in (HELD_JOBS, QUEUED_JOBS) for row in connection.execute(held)}
        for [job_ids] in connection.execute(HELD_LEASES_OF):
            jobs |= set(job_ids)
        time.sleep(seconds)
    _note_locked(targets, jobs, since)


def vanish(targets: Targets) -> None:
    """Kill clients within a transaction and within a pull, and keep their sessions open."""
    announced = targets.processes.directory / f"vanished-{targets.kills}"
    vanisher = targets.processes.start("vanisher", f"{ROLES}.vanisher", str(announced))
    wait_for(announced.exists, "a transaction that locks jobs")
    targets.lose_clients()
    since = time.monotonic()
    vanisher.kill([vanisher.popen.pid])
    if clients := targets.processes.living("client"):
        targets.kill_whole(random.choice(clients))
    targets.kills += 1
    time.sleep(LOST_SECONDS)
    _note_locked(targets, json.loads(announced.read_text()), since)


def lose(targets: Targets) -> None:
    """Kill a worker or raw claimer as if its machine were lost, in rounds early in a lease.

    Its sessions stay open on the server, with their locks.
    """
    if not targets.plan.rounds:
        targets.lose_clients()
        worker, _pids = targets.choose_victim()
        targets.kill_whole(worker)
        return
    targets.processes.order(LONG_JOBS, seconds=LONG_SECONDS, end="well")
    targets.lose_clients()
    worker = _wait_for_claim(targets)
    time.sleep(random.uniform(0, FIRST_SECOND))
    since = time.monotonic()
    pids = targets.kill_whole(worker)
    time.sleep(SETTLED_SECONDS)
    is_locked = _has_open_transactions(targets)
    time.sleep(max(0.0, since + LOST_SECONDS - time.monotonic()))
    if is_locked:
        targets.processes.lines += _lines(LOCKED, pids, since)


def _has_open_transactions(targets: Targets) -> bool:
    with targets.superuser() as connection:
        row = connection.execute(OPEN_TRANSACTIONS).fetchone()
    return bool(row and row[0])


def _wait_for_claim(targets: Targets) -> Process:
    """Return the first worker that claims from now on."""
    workers = targets.processes.living("worker")
    before = {worker: _count(worker, CLAIMED) for worker in workers}
    claimed: list[Process] = []

    def has_claimed() -> bool:
        claimed[:] = [worker for worker in workers if _count(worker, CLAIMED) > before[worker]]
        return bool(claimed)

    wait_for(has_claimed, "a claim")
    return claimed[0]


def freeze(targets: Targets) -> None:
    """Freeze an HTTP client for longer than its leases while its handlers run."""
    busy: list[Process] = []

    def has_busy_client() -> bool:
        targets.processes.order(LONG_JOBS, seconds=LONG_SECONDS, end="well")
        time.sleep(LONG_SECONDS / 2)
        busy[:] = filter(_is_in_a_long_job, targets.processes.living("client"))
        return bool(busy)

    wait_for(has_busy_client, "a client that runs a long job")
    client = random.choice(busy)
    client.stop([client.popen.pid], FROZEN_LEASES * targets.plan.lease_duration)


def hold(targets: Targets) -> None:
    """Have a handler keep the interpreter to itself for longer than its lease."""
    before = _count_all(targets, FROZE)
    targets.processes.order(1, seconds=0.1, end=HOLD)
    time.sleep(HELD_LEASES * targets.plan.lease_duration)
    wait_for(lambda: _count_all(targets, FROZE) > before, "a handler that holds the interpreter")


def raise_errors(targets: Targets) -> None:
    """Have handlers raise each class in `BASE_EXCEPTIONS`, in threads and on event loops."""
    for end in BASE_EXCEPTIONS:
        for channel in ("faults", "faults-async"):
            targets.processes.order(1, channel, seconds=0.05, end=end)
            time.sleep(BETWEEN_ERRORS)


def stall(targets: Targets) -> None:
    """Stop the traffic between server and clients for a second, several times, at random bytes."""
    for _time in range(STALLS):
        random.choice(targets.proxies).popen.send_signal(signal.SIGUSR2)
        time.sleep(BETWEEN_STALLS * random.uniform(1, 1.5))


WAITS: Final[dict[str, Callable[[Targets], None]]] = {
    "rows": lock_rows,
    "gone": vanish,
    "lose": lose,
    "freeze": freeze,
    "hold": hold,
    "raise": raise_errors,
    "stall": stall,
}


def _note_locked(targets: Targets, job_ids: Iterable[int], since: float) -> None:
    at = time.monotonic()
    targets.processes.lines += [Line(LOCKED, job, "-", 0, since, at) for job in job_ids]


def _lines(event: str, pids: Iterable[int], since: float) -> list[Line]:
    return [Line(event, 0, "-", pid, since, time.monotonic()) for pid in pids]


def _count(process: Process, event: str) -> int:
    """Count the records of an event that a process and its children wrote."""
    files = [_file(process, pid) for pid in process.at_work()]
    return sum(_count_in(file, event) for file in files)


def _file(process: Process, pid: int) -> Path:
    return process.processes.history / f"{process.role}-{pid}"


def _is_in_a_long_job(client: Process) -> bool:
    """Return True if a handler of the client runs now and has run for long, by its notes."""
    steps = [line for line in read_file(_file(client, client.pid)) if line.event == WORKED]
    running = {line.job for line in steps if line.at > time.monotonic() - RECENT_SECONDS}
    counts = Counter(line.job for line in steps)
    return any(counts[job] >= LONG_STEPS for job in running)


def _count_all(targets: Targets, event: str) -> int:
    return sum(_count_in(file, event) for file in targets.processes.history.iterdir())


def _count_in(file: Path, event: str) -> int:
    return file.read_bytes().count(f'["{event}"'.encode()) if file.exists() else 0
