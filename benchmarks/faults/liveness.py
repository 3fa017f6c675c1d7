"""Rules about waits, replaced processes and readiness, for runs with one fault at a time.

They need a load that leaves threads idle, and lines that say which jobs and processes a fault
concerned: `locked`, `froze`, `stopped`, `continued` and `killed`.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Final, NamedTuple

from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    CONTINUED,
    ENDED,
    FROZE,
    KILLED,
    LOCKED,
    PUBLISHED,
    READY,
    SENT,
    STOPPED,
    UNREADY,
    WORKED,
    Line,
)
from benchmarks.faults.job_claims import NEVER, JobClaim

MARGIN: Final = 0.3
"""Seconds by which a time of the director and a time of a process may differ."""
RETRY_SECONDS: Final = 0.1
"""Retry delay of the consumers of a run."""
ANSWER_SECONDS: Final = 5.0
"""Time that the server has to answer `/readyz`, as its guide says."""
LATE_STEPS: Final = 1
"""Times that a handler may note that it works after its lease, if frozen after its check."""
DEAF_JOBS: Final = 60
"""Jobs that other processes claim while a ready process claims none, which then is deaf."""


@dataclass(frozen=True)
class Bounds:
    """Longest times in seconds that the rules allow in a run with one fault at a time."""

    lease_duration: float
    ready: float
    """Time within which `/readyz` shows a change."""


class Window(NamedTuple):
    """Time during which a fault lasted."""

    since: float
    until: float

    def overlaps(self, since: float, until: float) -> bool:
        """Return True if the fault lasted at some time of the span."""
        return self.since <= until and since <= self.until


class Wait(NamedTuple):
    """Time for which a job waited to be published, claimed, begun or settled, as `text` says."""

    job: int
    text: str
    since: float
    until: float
    lost_claims: int = 0
    """Claims in between whose answers were lost with their processes. Each has a lease."""

    @property
    def seconds(self) -> float:
        """Length of the wait."""
        return self.until - self.since


@dataclass(frozen=True)
class Disturbances:
    """Faults of a run, to look up by the jobs and processes that they concerned."""

    lines: Sequence[Line]

    @cached_property
    def by_job(self) -> dict[int, list[Window]]:
        """Times in which rows of a job were locked, by job id."""
        windows = defaultdict(list)
        for line in self.lines:
            if line.event == LOCKED and line.job:
                windows[line.job].append(Window(line.since, line.at))
        return windows

    @cached_property
    def sessions(self) -> dict[int, list[Window]]:
        """Times in which the server kept a session of a killed process open, by process id."""
        windows = defaultdict(list)
        for line in self.lines:
            if line.event == LOCKED and not line.job:
                windows[line.process].append(Window(line.since, line.at))
        return windows

    @cached_property
    def by_process(self) -> dict[int, list[Window]]:
        """Times in which a process could not work, by process id."""
        windows = defaultdict(list)
        stopped: dict[int, float] = {}
        for line in self.lines:
            if line.event == STOPPED:
                stopped.setdefault(line.process, line.since)
            elif line.event == CONTINUED and line.process in stopped:  # Two stops may overlap.
                windows[line.process].append(Window(stopped.pop(line.process), line.at))
            elif line.event == FROZE:
                windows[line.process].append(Window(line.since, line.at))
            elif line.event == KILLED:
                windows[line.process].append(Window(line.since, NEVER))
        for process, since in stopped.items():
            windows[process].append(Window(since, NEVER))
        return windows

    def concern_process(self, process: int, since: float, until: float) -> bool:
        """Return True if the process could not work at some time of the span."""
        return _overlap(self.by_process.get(process, ()), since, until)

    def concern_job(self, job: int, since: float, until: float) -> bool:
        """Return True if rows of the job were locked at some time of the span."""
        return _overlap(self.by_job.get(job, ()), since, until)


def _overlap(windows: Iterable[Window], since: float, until: float) -> bool:
    return any(window.overlaps(since, until) for window in windows)


def unrelated_waits(
    lines: Sequence[Line], by_job: dict[int, list[JobClaim]], faults: Disturbances
) -> Iterator[Wait]:
    """Yield each job's wait for its publish, and those later waits that no fault concerned."""
    published = {line.job: line for line in lines if line.event == PUBLISHED}
    for job, line in published.items():
        yield Wait(job, "published", line.since, line.at)
        waits = _waits_of_job(line.at, by_job.get(job, ()), faults)
        yield from (wait for wait in waits if not faults.concern_job(job, wait.since, wait.until))


def _waits_of_job(
    published_at: float, claims: Sequence[JobClaim], faults: Disturbances
) -> Iterator[Wait]:
    due, deliveries = published_at, 0
    for claim in claims:
        claimed = claim.claimed
        lost = max(0, claimed.deliveries - deliveries - 1)
        yield Wait(claim.job, "claimed", due, claimed.since, lost)
        yield from _waits_of_claim(claim, faults)
        due = _due_again(claim, faults)
        is_released = any(line.outcome == "release" for line in claim.lines[SENT])
        deliveries = claimed.deliveries - is_released


def _waits_of_claim(claim: JobClaim, faults: Disturbances) -> Iterator[Wait]:
    """Yield the waits for the start of the handler, and for the answer to its outcome."""
    process, lines = claim.claimed.process, claim.lines
    ends = [line.at for line in chain(claim.started, lines[SENT])]
    spans = [("begun", claim.claimed.at, min([*ends, claim.let_go, claim.lease_end]))]
    if lines[ENDED] and lines[ANSWERED]:
        spans.append(("settled", lines[ENDED][0].at, lines[ANSWERED][0].at))
    for text, since, until in spans:
        if not faults.concern_process(process, since, until):
            yield Wait(claim.job, text, since, until)


def _due_again(claim: JobClaim, faults: Disturbances) -> float:
    """Return the latest time from which the job of a claim can be claimed again."""
    if claim.is_queued_again:
        return max(line.at for line in claim.accepted) + RETRY_SECONDS
    sessions = faults.sessions.get(claim.claimed.process, ())
    return max([claim.lease_end, *(window.until for window in sessions)])


def late_runs(claims: Iterable[JobClaim]) -> Iterator[str]:
    """Yield a sentence for each run of a handler that went on after its lease."""
    for claim in claims:
        late = [line for line in claim.lines[WORKED] if line.at > claim.lease_end]
        if len(late) > LATE_STEPS:
            seconds = late[-1].at - claim.lease_end
            yield f"{claim.job} ran for {seconds:.1f} s after {claim.lease_token} had ended"


def untrue_answers(lines: Sequence[Line], faults: Disturbances, bounds: Bounds) -> Iterator[str]:
    """Yield a sentence for each untrue answer of `/readyz`, and each good one that came late."""
    for line in lines:
        windows = faults.by_process.get(line.process, ())
        if line.event == UNREADY:
            if not any(_explains(window, line, bounds) for window in windows):
                yield f"{line.process} was not ready ({line.outcome}) at {line.at:.1f}, unexplained"
        elif line.event == READY:
            if line.at - line.since > ANSWER_SECONDS:
                yield f"{line.process} took {line.at - line.since:.1f} s to say that it is ready"
            yield from _false_readiness(windows, line, bounds)


def _explains(window: Window, line: Line, bounds: Bounds) -> bool:
    return window.overlaps(line.since - bounds.ready, line.at)


def _false_readiness(windows: Iterable[Window], line: Line, bounds: Bounds) -> Iterator[str]:
    for window in windows:
        if window.since + bounds.ready + MARGIN < line.since and line.at < window.until:
            seconds = line.since - window.since
            yield f"{line.process} was ready {seconds:.1f} s after it had stopped to work"


def deaf_processes(lines: Sequence[Line], faults: Disturbances, bounds: Bounds) -> Iterator[str]:
    """Yield a sentence for each time in which a ready process claims nothing and others do.

    Processes that never claim are not judged, because servers of HTTP clients do not.
    """
    claims = [line for line in lines if line.event == CLAIMED]
    times = [line.at for line in claims]
    ready = defaultdict(list)
    for line in lines:
        if line.event == READY:
            ready[line.process].append(line.at)
    for process, answers in ready.items():
        own = [line.at for line in claims if line.process == process]
        if not own:
            continue  # A server claims in the name of its clients.
        for since, until in pairwise([answers[0], *own, answers[-1]]):
            others = bisect_left(times, until) - bisect_left(times, since)
            is_idle = until - since > 2 * bounds.ready and others > DEAF_JOBS
            if is_idle and not faults.concern_process(process, since - bounds.ready, until):
                yield f"{process} was ready and claimed nothing for {until - since:.1f} s"
