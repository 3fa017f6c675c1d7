"""What must not show in a history and its tables. Only what no order of events explains is a fault.

Each rule takes the case and yields a sentence a fault; what it promises is its docstring.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, pairwise
from typing import Final

from benchmarks.faults import tenures
from benchmarks.faults.history import (
    DEAD,
    DELIVERED,
    PUBLISHED,
    ROLLED_BACK,
    SENT,
    Line,
)
from benchmarks.faults.tables import Tables
from benchmarks.faults.tenures import NEVER, Tenure, Tenures


@dataclass(frozen=True)
class Case:
    """Lines by time, and the tables at the end; `threads` run handlers in a process."""

    lines: Sequence[Line]
    tables: Tables
    threads: int = 0

    @cached_property
    def tenures(self) -> Tenures:
        gathered = tenures.gather(self.lines)
        tenures.note_ends(gathered, self.lines)
        return gathered

    def jobs(self, event: str) -> set[int]:
        return {line.job for line in self.lines if line.event == event}


def nothing_is_lost(case: Case) -> Iterator[str]:
    """A job whose publish was acknowledged is there, until it is settled and for ever after."""
    for job in case.jobs(PUBLISHED):
        if job not in case.tables:
            yield f"{job} was acknowledged and is nowhere"


def nothing_is_made_up(case: Case) -> Iterator[str]:
    """A publish that was rolled back left no job."""
    for job in case.jobs(ROLLED_BACK):
        if job in case.tables:
            yield f"{job} was rolled back and is there"


def all_is_settled(case: Case) -> Iterator[str]:
    """A job ends delivered once and gone, or dead and remembered."""
    tables = case.tables
    for job in tables.live.keys() | tables.archived.keys():
        live, delivered = tables.live.get(job), len(tables.delivered(job))
        if delivered > 1 or (delivered and live):
            yield f"{job} was delivered {delivered} times, and is {live and live.state} now"
        elif live and (live.state != DEAD or not tables.archived.get(job)):
            yield f"{job} is {live.state} at the end, its history {tables.archived.get(job)}"


def claims_settle_once(case: Case) -> Iterator[str]:
    """A claim of a job has at most one settlement, in the answers and in the archive."""
    for tenure in _every(case):
        if len(tenure.accepted) > 1:
            said = ", ".join(line.said for line in tenure.accepted)
            yield f"{tenure.job} was settled {said} under {tenure.token}"
    for job, settled in case.tables.archived.items():
        tokens = [one.token for one in settled if one.token]
        if len(tokens) != len(set(tokens)):
            yield f"{job} was archived twice under one of {', '.join(tokens)}"


def answers_are_true(case: Case) -> Iterator[str]:
    """What was answered is in the archive, and nothing is delivered there that nobody asked for."""
    for tenure in _every(case):
        archived = case.tables.archived.get(tenure.job, ())
        rows = {one.state for one in archived if one.token == tenure.token}
        for line in tenure.accepted:
            if line.said in (DELIVERED, DEAD) and line.said not in rows:
                yield f"{tenure.job} was answered {line.said} under {tenure.token}, not archived"
        asked = any(line.said == "deliver" for line in tenure.lines[SENT])
        if DELIVERED in rows and not asked:
            yield f"{tenure.job} was archived under {tenure.token}, which never asked for it"
    for job, settled in case.tables.archived.items():
        known = {tenure.token for tenure in case.tenures.by_job.get(job, ())}
        for one in settled:
            if one.state == DELIVERED and one.token not in known:
                yield f"{job} was delivered under {one.token}, which nobody claimed"


def leases_do_not_overlap(case: Case) -> Iterator[str]:
    """A job has at most one live lease, and none once it is DELIVERED or DEAD."""
    yield from case.tenures.strange
    for job, every in case.tenures.by_job.items():
        ends = [line for one in every for line in one.accepted if line.said in (DELIVERED, DEAD)]
        for tenure in every:
            if any(line.at < tenure.claim.since for line in ends):
                yield f"{job} was claimed under {tenure.token} after its end"
        for one, other in combinations(every, 2):
            if not _may_follow(one, other) and not _may_follow(other, one):
                yield _conflict(one, other)


def _may_follow(first: Tenure, second: Tenure) -> bool:
    """Whether the first may have ended, and been heard for the last time, when the second began."""
    began = second.claim.at
    heard = [line.since for line in [*first.accepted, *first.lines["renewed"]]]
    return first.surely_until <= began and all(since <= began for since in heard)


def _conflict(first: Tenure, second: Tenure) -> str:
    if second.claim.at < first.surely_until:
        return f"{first.job} was claimed under {second.token} while {first.token} held it"
    return f"{first.job} was written under {first.token} after {second.token} took it"


def keys_run_one_at_a_time(case: Case) -> Iterator[str]:
    """Of an exclusive key one job at most is held at a time."""
    by_key: dict[str, list[Tenure]] = defaultdict(list)
    for tenure in _every(case):
        key = case.tables.keys.get(tenure.job)
        # One that was frozen over the answer may have held it only before it heard so.
        if key is not None and tenure.claim.at < tenure.surely_until:
            by_key[key].append(tenure)
    for key, every in by_key.items():
        latest: Tenure | None = None
        for tenure in sorted(every, key=lambda one: one.claim.at):
            if latest and tenure.claim.at < latest.surely_until:
                yield f"{tenure.job} was claimed while {latest.job} held their key {key}"
            if latest is None or tenure.surely_until > latest.surely_until:
                latest = tenure


def nothing_runs_twice_without_cause(case: Case) -> Iterator[str]:
    """A job runs again only if its holder wished it, was killed, or had lost the lease by then."""
    for job, every in case.tenures.by_job.items():
        ran = [tenure for tenure in every if tenure.started]
        for tenure in ran:
            if len(tenure.started) > 1:
                yield f"{job} ran {len(tenure.started)} times under {tenure.token}"
        for first, second in pairwise(ran):
            if not (first.may_have_returned or _was_taken(first, second)):
                yield f"{job} ran under {second.token}, though {first.token} had run it in peace"


def _was_taken(first: Tenure, second: Tenure) -> bool:
    return first.let_go < NEVER or first.granted_until <= second.claim.at


def only_what_started_is_charged(case: Case) -> Iterator[str]:
    """A retry is counted for a run that failed or was lost; never for a job that only waited.

    A process that is killed may have taken up jobs and not yet have said so: no more of them than
    it had threads.
    """
    untold: Counter[int] = Counter()
    for job, every in case.tenures.by_job.items():
        for first, second in pairwise(every):
            charged = second.claim.retry_count - first.claim.retry_count
            unseen = second.claim.deliveries - first.claim.deliveries > 1
            if charged <= 0 or unseen:
                continue
            if first.killed_at < NEVER:
                untold[first.claim.process] += not first.started
            elif charged > 1 or not first.started:
                yield f"{job} was charged {charged} for {first.token}, which had not started it"
    for process, count in untold.items():
        if count > case.threads:
            yield f"{count} jobs were charged for {process}, which had not started them"


def _every(case: Case) -> Iterator[Tenure]:
    for every in case.tenures.by_job.values():
        yield from every


RULES: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    nothing_is_lost,
    nothing_is_made_up,
    all_is_settled,
    claims_settle_once,
    answers_are_true,
    leases_do_not_overlap,
    keys_run_one_at_a_time,
    nothing_runs_twice_without_cause,
    only_what_started_is_charged,
)


def faults(case: Case) -> dict[str, list[str]]:
    """Sentences by the rule that was broken."""
    found = {rule.__name__: list(rule(case)) for rule in RULES}
    return {name: sentences for name, sentences in found.items() if sentences}
