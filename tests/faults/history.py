"""A history of claims and settles kept outside the database, and what it must not show.

A line is written before a request is sent or after its answer came, so the moment at which the
database did it lies between the two. Only what no order of such moments can explain is a fault.
"""

import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

CLAIMED, RENEWED, SENT, ANSWERED = "claimed", "renewed", "sent", "answered"
DELIVERED, LOST = "DELIVERED", "LOST"


class Line(NamedTuple):
    """`since` is when the request was sent, `at` when the line was written."""

    event: str
    job: int
    token: str
    process: int
    since: float
    at: float
    said: str = "-"
    """Of an answer: the state, or LOST; of a claim or a renewal: the seconds granted."""


class Pen:
    """Appends lines to a file that other processes append to as well."""

    def __init__(self, file: Path) -> None:
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: str, job: int, token: object, since: float, said: object = "-") -> None:
        line = Line(event, job, str(token), os.getpid(), since, time.monotonic(), str(said))
        os.write(self._file, (" ".join(map(str, line)) + "\n").encode())


def read(file: Path) -> list[Line]:
    rows = (line.split(" ") for line in file.read_text().splitlines())
    return [
        Line(event, int(job), token, int(process), float(since), float(at), said)
        for event, job, token, process, since, at, said in rows
    ]


@dataclass
class Tenure:
    """What one token had of one job."""

    job: int
    token: str
    claim: Line
    renewals: list[Line] = field(default_factory=list)
    sent: list[Line] = field(default_factory=list)
    answers: list[Line] = field(default_factory=list)

    @property
    def surely_until(self) -> float:
        """It held the job at least from the claim's answer to then."""
        granted = max(line.since + float(line.said) for line in [self.claim, *self.renewals])
        return min([granted, *(line.at for line in self.sent)])

    @property
    def accepted(self) -> list[Line]:
        return [line for line in self.answers if line.said != LOST]


def faults(lines: list[Line]) -> list[str]:
    """A sentence for everything that can't have happened if every promise was kept."""
    found = []
    by_job: dict[int, dict[str, Tenure]] = defaultdict(dict)
    for line in sorted(lines, key=lambda line: line.at):
        tenures = by_job[line.job]
        if line.event == CLAIMED:
            if line.token in tenures:
                found.append(f"{line.job} was claimed twice under {line.token}")
            tenures[line.token] = Tenure(line.job, line.token, line)
        elif line.token not in tenures:
            found.append(f"{line.job} was {line.event} under {line.token}, which never claimed it")
        else:
            _lines_of(tenures[line.token], line.event).append(line)
    for job, tenures in by_job.items():
        found += _faults_of(job, list(tenures.values()))
    return found


def _lines_of(tenure: Tenure, event: str) -> list[Line]:
    return {RENEWED: tenure.renewals, SENT: tenure.sent, ANSWERED: tenure.answers}[event]


def _faults_of(job: int, tenures: list[Tenure]) -> Iterator[str]:
    delivered = [line for tenure in tenures for line in tenure.accepted if line.said == DELIVERED]
    unanswered = any(len(tenure.sent) > len(tenure.answers) for tenure in tenures)
    if len(delivered) != 1 and not (unanswered and not delivered):
        yield f"{job} was delivered {len(delivered)} times"
    for tenure in tenures:
        if any(line.at < tenure.claim.since for line in delivered):
            yield f"{job} was claimed under {tenure.token} after it was delivered"
    for one, other in combinations(sorted(tenures, key=lambda tenure: tenure.claim.at), 2):
        if not _explains(one, other) and not _explains(other, one):
            yield _conflict(one, other)


def _explains(first: Tenure, second: Tenure) -> bool:
    """Whether the first may have ended, and been heard for the last time, when the second began."""
    began = second.claim.at
    heard = [line.since for line in [*first.accepted, *first.renewals]]
    return first.surely_until <= began and all(since <= began for since in heard)


def _conflict(first: Tenure, second: Tenure) -> str:
    if second.claim.at < first.surely_until:
        return f"{first.job} was claimed under {second.token} while {first.token} held it"
    return f"{first.job} was written under {first.token} after {second.token} took it"


def shares(lines: list[Line]) -> dict[int, float]:
    """Of all claims, by process."""
    counts = Counter(line.process for line in lines if line.event == CLAIMED)
    return {process: count / counts.total() for process, count in counts.items()}
