"""What a claim gave one process of one job, from its history."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    ENDED,
    GIVING_BACK,
    KILLED,
    LOST,
    QUEUED,
    REFUSED,
    RENEWED,
    SENT,
    STARTED,
    Line,
)

RETURNING = ("retry", "release")
NEVER = float("inf")


@dataclass
class Tenure:
    """The time that one token had one job; `let_go` is when its process died or gave it back."""

    claim: Line
    let_go: float = NEVER
    killed_at: float = NEVER
    lines: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))

    @property
    def job(self) -> int:
        return self.claim.job

    @property
    def token(self) -> str:
        return self.claim.token

    @property
    def granted_until(self) -> float:
        """At the earliest, for the lease began after `since`."""
        return max(line.since + line.seconds for line in [self.claim, *self.lines[RENEWED]])

    @property
    def surely_until(self) -> float:
        """It held the job at least from the claim's answer to then."""
        return min([self.granted_until, self.let_go, *(line.at for line in self.lines[SENT])])

    @property
    def accepted(self) -> list[Line]:
        return [line for line in self.lines[ANSWERED] if line.said not in (LOST, REFUSED)]

    @property
    def started(self) -> list[Line]:
        return self.lines[STARTED]

    @property
    def unanswered(self) -> bool:
        return len(self.lines[SENT]) > len(self.lines[ANSWERED])

    @property
    def may_have_returned(self) -> bool:
        """Its holder asked for it to go back to the queue, and was not told no."""
        said = [line.said for line in self.accepted]
        asked = any(line.said in RETURNING for line in self.lines[SENT])
        return QUEUED in said or (asked and self.unanswered)


@dataclass(frozen=True)
class Tenures:
    by_job: dict[int, list[Tenure]]
    """In the order of their claims."""
    strange: list[str]
    """Sentences about lines that belong to no claim, or to two."""


def gather(lines: Iterable[Line]) -> Tenures:
    """From lines in order of time."""
    by_job: dict[int, dict[str, Tenure]] = defaultdict(dict)
    strange = []
    for line in lines:
        tenures = by_job[line.job] if line.event in TOLD else {}
        if line.event == CLAIMED and line.token in tenures:
            strange.append(f"{line.job} was claimed twice under {line.token}")
        elif line.event == CLAIMED:
            tenures[line.token] = Tenure(line)
        elif line.token in tenures:
            tenures[line.token].lines[line.event].append(line)
        elif line.event in TOLD:
            strange.append(
                f"{line.job} was {line.event} under {line.token}, which never claimed it"
            )
    return Tenures({job: list(tenures.values()) for job, tenures in by_job.items()}, strange)


TOLD = frozenset({CLAIMED, RENEWED, STARTED, ENDED, SENT, ANSWERED})


def note_ends(tenures: Tenures, lines: Iterable[Line]) -> None:
    """On each tenure, when its process was killed, or gave back what it did not know of."""
    ends: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.event in (KILLED, GIVING_BACK):
            ends[line.process].append(line)
    for tenure in (one for every in tenures.by_job.values() for one in every):
        for line in ends[tenure.claim.process]:
            if line.at >= tenure.claim.since and tenure.token not in line.said:
                tenure.let_go = min(tenure.let_go, line.since)
                if line.event == KILLED:
                    tenure.killed_at = min(tenure.killed_at, line.since)
