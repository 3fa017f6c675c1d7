"""Claims of single jobs, put together from the lines of the histories."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cmp_to_key

from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    ENDED,
    FROZE,
    GIVING_BACK,
    KILLED,
    LOST,
    QUEUED,
    REFUSED,
    RENEWED,
    SENT,
    STARTED,
    WORKED,
    Line,
)

RETURNING = ("retry", "release")
OF_A_CLAIM = frozenset({CLAIMED, RENEWED, STARTED, WORKED, FROZE, ENDED, SENT, ANSWERED})
"""Events whose lines belong to the claim of a job."""
NEVER = float("inf")


@dataclass
class JobClaim:
    """Claim of one job under one lease token."""

    claimed: Line
    let_go: float = NEVER
    """Time at which the process died or gave the job back."""
    killed_at: float = NEVER
    lines: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))

    @property
    def job(self) -> int:
        """Id of the job."""
        return self.claimed.job

    @property
    def lease_token(self) -> str:
        """Token of the lease."""
        return self.claimed.lease_token

    @property
    def leased_until(self) -> float:
        """Earliest possible end of the lease, which began after the request was sent."""
        return max(line.since + line.seconds for line in [self.claimed, *self.lines[RENEWED]])

    @property
    def lease_end(self) -> float:
        """Latest possible end of the lease, which began before the answer was recorded."""
        return max(line.at + line.seconds for line in [self.claimed, *self.lines[RENEWED]])

    @property
    def surely_until(self) -> float:
        """Time until which the process surely held the job, from the answer to its claim on."""
        return min([self.leased_until, self.let_go, *(line.at for line in self.lines[SENT])])

    @property
    def accepted(self) -> list[Line]:
        """Answers that accepted an outcome: the job was settled or queued again."""
        return [line for line in self.lines[ANSWERED] if line.outcome not in (LOST, REFUSED)]

    @property
    def started(self) -> list[Line]:
        """Lines that record a start of the handler."""
        return self.lines[STARTED]

    @property
    def is_unanswered(self) -> bool:
        """True if an outcome was sent whose answer never came."""
        return len(self.lines[SENT]) > len(self.lines[ANSWERED])

    @property
    def is_queued_again(self) -> bool:
        """True if the answer to an outcome of the holder says that the job is queued again."""
        return QUEUED in [line.outcome for line in self.accepted]

    @property
    def may_have_returned(self) -> bool:
        """True if the job was queued again as its holder asked, or the answer never came."""
        is_asked = any(line.outcome in RETURNING for line in self.lines[SENT])
        return self.is_queued_again or (is_asked and self.is_unanswered)


@dataclass(frozen=True)
class JobClaims:
    """Claims of all jobs of a run, by job."""

    by_job: dict[int, list[JobClaim]]
    """Claims of each job, in the order in which the database made them."""
    strange: list[str]
    """Sentences about lines that belong to no claim or to two claims."""


def collect_claims(lines: Iterable[Line]) -> JobClaims:
    """Collect the claims from lines in order of time."""
    by_job: dict[int, dict[str, JobClaim]] = defaultdict(dict)
    strange = []
    for line in lines:
        claims = by_job[line.job] if line.event in OF_A_CLAIM else {}
        if line.event == CLAIMED and line.lease_token in claims:
            strange.append(f"{line.job} was claimed twice under {line.lease_token}")
        elif line.event == CLAIMED:
            claims[line.lease_token] = JobClaim(line)
        elif line.lease_token in claims:
            claims[line.lease_token].lines[line.event].append(line)
        elif line.event in OF_A_CLAIM:
            strange.append(
                f"{line.job} was {line.event} under {line.lease_token}, which never claimed it"
            )
    ordered = {
        job: sorted(claims.values(), key=cmp_to_key(_compare_claims))
        for job, claims in by_job.items()
    }
    return JobClaims(ordered, strange)


def _compare_claims(first: JobClaim, second: JobClaim) -> int:
    """Return a negative number if the database made the first of two claims of a job first.

    The number of deliveries never falls from a claim to the next, and stays the same after a claim
    that did not start the job. Between equal numbers, a claim whose answer was recorded before the
    other was sent came first. If they overlap, because a process on a busy machine records its
    answers late or a long poll waited, a claim whose job was returned came first.
    """
    left, right = first.claimed, second.claimed
    if left.deliveries != right.deliveries:
        return left.deliveries - right.deliveries
    is_apart = left.at <= right.since or right.at <= left.since
    if not is_apart and first.is_queued_again != second.is_queued_again:
        return -1 if first.is_queued_again else 1
    is_by_answer = is_apart or first.is_queued_again
    return -1 if (left.at < right.at if is_by_answer else left.since < right.since) else 1


def note_ends(job_claims: JobClaims, lines: Iterable[Line]) -> None:
    """Set `let_go` and `killed_at` of claims whose process was killed or gave them back."""
    ends: dict[int, list[Line]] = defaultdict(list)
    for line in lines:
        if line.event in (KILLED, GIVING_BACK):
            ends[line.process].append(line)
    for claim in (claim for claims in job_claims.by_job.values() for claim in claims):
        for line in ends[claim.claimed.process]:
            if line.at >= claim.claimed.since and claim.lease_token not in line.outcome:
                claim.let_go = min(claim.let_go, line.since)
                if line.event == KILLED:
                    claim.killed_at = min(claim.killed_at, line.since)
