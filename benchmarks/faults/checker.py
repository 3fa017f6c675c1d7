"""Rules that the histories and the tables of a run must keep.

Each rule takes the case and yields sentences about violations. A rule about the order of events
reports one only if no possible order explains the history.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, combinations, pairwise
from typing import Final

from benchmarks.faults.claim_rates import (
    USED_SHARE,
    ClaimRate,
    LimitChange,
    TimedClaim,
    find_overdrafts,
    find_phases,
    used_share,
)
from benchmarks.faults.history import (
    DEAD,
    DELIVERED,
    PUBLISHED,
    RENEWED,
    ROLLED_BACK,
    SENT,
    THROTTLED,
    Line,
)
from benchmarks.faults.job_claims import NEVER, JobClaim, JobClaims, collect_claims, note_ends
from benchmarks.faults.key_limits import Holding, KeyLimits, find_excess, unequal_shares
from benchmarks.faults.liveness import (
    Bounds,
    Disturbances,
    Wait,
    deaf_processes,
    late_runs,
    unrelated_waits,
    untrue_answers,
)
from benchmarks.faults.spans import Span
from benchmarks.faults.tables import Tables


@dataclass(frozen=True)
class Case:
    """Evidence of a run: lines of histories in order of time, and the tables at the end."""

    lines: Sequence[Line]
    tables: Tables
    threads: int = 0
    """Threads that run handlers in each process."""
    bounds: Bounds | None = None
    """Longest times that the rules allow, or None if the faults of the run delay every job."""
    replaced: Sequence[str] = ()
    """Sentences about processes that ended and were not killed by the director."""
    clients: frozenset[int] = frozenset()
    """Processes of HTTP clients: their server does not know which jobs have started."""
    rate: ClaimRate | None = None
    """Rate of each consumer or of their group, or None if there is no rate."""
    in_flight: tuple[int, bool] = (0, False)
    """Bound on jobs in flight, 0 for none, and True if all consumers share it."""
    keys: KeyLimits = KeyLimits()
    disturbed: Sequence[Span] | None = None
    """Times of the database in which faults may have delayed claims. None: at all times."""
    changes: Sequence[LimitChange] = ()
    """Limits that were changed at run time."""

    @cached_property
    def claims(self) -> JobClaims:
        """Claims that the lines record."""
        claims = collect_claims(self.lines)
        note_ends(claims, self.lines)
        return claims

    @cached_property
    def timed_claims(self) -> Sequence[TimedClaim]:
        """Claims in the tables, with the times at which publishers recorded their jobs.

        From such a time on the job surely waited. A delayed job counts as not waiting.
        """
        published = {line.job: line for line in self.lines if line.event == PUBLISHED}
        since = {
            job: None if line.seconds else line.at + self.tables.clock_offset
            for job, line in published.items()
        }
        return [
            claim._replace(created_at=claim.created_at and since.get(claim.job, claim.created_at))
            for claim in self.tables.claims
        ]

    def find_slots(self, since: float, until: float) -> int:
        """Return the highest bound on a key's jobs in flight between two monotonic times."""
        first = LimitChange(float("-inf"), float("-inf"), 0, 0, self.keys.slots)
        offset = self.tables.clock_offset
        return max(
            change.slots
            for span, change in find_phases(first, self.changes)
            if span.since <= until + offset and since + offset <= span.until
        )

    @cached_property
    def disturbances(self) -> Disturbances:
        """Faults of the run, to look up by a job or process that they concerned."""
        return Disturbances(self.lines)

    @cached_property
    def waits(self) -> list[Wait]:
        """Times for which a job waited although no fault concerned it."""
        return list(unrelated_waits(self.lines, self.claims.by_job, self.disturbances))

    def jobs(self, event: str) -> set[int]:
        """Return the ids of the jobs that have a line of this event."""
        return {line.job for line in self.lines if line.event == event}


def nothing_is_lost(case: Case) -> Iterator[str]:
    """Check that every job whose publish was acknowledged is in the tables."""
    for job in case.jobs(PUBLISHED):
        if job not in case.tables:
            yield f"{job} was acknowledged and is nowhere"


def nothing_is_made_up(case: Case) -> Iterator[str]:
    """Check that a publish that was rolled back left no job."""
    for job in case.jobs(ROLLED_BACK):
        if job in case.tables:
            yield f"{job} was rolled back and is there"


def all_is_settled(case: Case) -> Iterator[str]:
    """Check that at the end every job is delivered once and gone, or DEAD and in the archive."""
    tables = case.tables
    for job in tables.live.keys() | tables.archived.keys():
        live, delivered = tables.live.get(job), len(tables.delivered(job))
        if delivered > 1 or (delivered and live):
            yield f"{job} was delivered {delivered} times, and is {live and live.state} now"
        elif live and (live.state != DEAD or not tables.archived.get(job)):
            yield f"{job} is {live.state} at the end, its history {tables.archived.get(job)}"


def claims_settle_once(case: Case) -> Iterator[str]:
    """Check that a job is settled at most once for each claim, by answers and by the archive."""
    for claim in _all_claims(case):
        if len(claim.accepted) > 1:
            outcomes = ", ".join(line.outcome for line in claim.accepted)
            yield f"{claim.job} was settled {outcomes} under {claim.lease_token}"
    for job, settled in case.tables.archived.items():
        tokens = [row.lease_token for row in settled if row.lease_token]
        if len(tokens) != len(set(tokens)):
            yield f"{job} was archived twice under one of {', '.join(tokens)}"


def answers_are_true(case: Case) -> Iterator[str]:
    """Check that confirmed settlements are archived, and archived deliveries were requested."""
    for claim in _all_claims(case):
        archived = case.tables.archived.get(claim.job, ())
        states = {row.state for row in archived if row.lease_token == claim.lease_token}
        for line in claim.accepted:
            if line.outcome in (DELIVERED, DEAD) and line.outcome not in states:
                answer = f"{claim.job} was answered {line.outcome} under {claim.lease_token}"
                yield f"{answer}, not archived"
        is_asked = any(line.outcome == "deliver" for line in claim.lines[SENT])
        if DELIVERED in states and not is_asked:
            yield f"{claim.job} was archived under {claim.lease_token}, which never asked for it"
    for job, settled in case.tables.archived.items():
        known = {claim.lease_token for claim in case.claims.by_job.get(job, ())}
        for row in settled:
            if row.state == DELIVERED and row.lease_token not in known:
                yield f"{job} was delivered under {row.lease_token}, which claimed nothing"


def leases_do_not_overlap(case: Case) -> Iterator[str]:
    """Check that a job has at most one live lease, and none once it is DELIVERED or DEAD."""
    yield from case.claims.strange
    for job, claims in case.claims.by_job.items():
        answers = [line for claim in claims for line in claim.accepted]
        ends = [line for line in answers if line.outcome in (DELIVERED, DEAD)]
        for claim in claims:
            if any(line.at < claim.claimed.since for line in ends):
                yield f"{job} was claimed under {claim.lease_token} after its end"
        for first, second in combinations(claims, 2):
            if not _may_follow(first, second) and not _may_follow(second, first):
                yield _conflict(first, second)


def _may_follow(first: JobClaim, second: JobClaim) -> bool:
    """Return True if the first claim may have ended before the second began."""
    began = second.claimed.at
    answered = [line.since for line in [*first.accepted, *first.lines[RENEWED]]]
    return first.surely_until <= began and all(since <= began for since in answered)


def _conflict(first: JobClaim, second: JobClaim) -> str:
    if second.claimed.at < first.surely_until:
        text = f"{first.job} was claimed under {second.lease_token}"
        return f"{text} while {first.lease_token} held it"
    text = f"{first.job} was written under {first.lease_token}"
    return f"{text} after {second.lease_token} took it"


def keys_run_one_at_a_time(case: Case) -> Iterator[str]:
    """Check that at most one job of an exclusive key is held at a time."""
    if not case.keys.is_exclusive:
        return
    by_key: dict[str, list[JobClaim]] = defaultdict(list)
    for claim in _all_claims(case):
        key = case.tables.keys.get(claim.job)
        # A process that was frozen over the answer may have held the job only before the answer.
        if key is not None and claim.claimed.at < claim.surely_until:
            by_key[key].append(claim)
    for key, claims in by_key.items():
        latest: JobClaim | None = None
        for claim in sorted(claims, key=lambda claim: claim.claimed.at):
            if latest and claim.claimed.at < latest.surely_until:
                yield f"{claim.job} was claimed while {latest.job} held their key {key}"
            if latest is None or claim.surely_until > latest.surely_until:
                latest = claim


def keys_keep_their_slots(case: Case) -> Iterator[str]:
    """Check that at no instant more jobs of a key are surely held than its bound allows."""
    if not case.keys.slots:
        return
    by_key: dict[tuple[int, str], list[Holding]] = defaultdict(list)
    for claim in _all_claims(case):
        key, consumer = case.tables.keys.get(claim.job, ""), case.tables.consumers.get(claim.job, 0)
        holding = Holding(claim.claimed.since, claim.claimed.at, claim.surely_until)
        by_key[consumer, key].append(holding)
    for (consumer, key), held in by_key.items():
        if excess := find_excess(held, case.find_slots):
            own = f"{excess[0]} jobs of key {key} of consumer {consumer}"
            yield f"{own} were in flight at once, and it has {excess[1]} slots"


def keys_share(case: Case) -> Iterator[str]:
    """Check that of two keys with waiting jobs none gets more turns than the other.

    A lead of one turn is allowed, and of another turn for each process, because a process may have
    read the turns before others changed them. Keys with a bound or a rate are not judged.
    """
    is_by_turn = (
        case.keys.is_fair and not case.keys.slots and not (case.rate and case.rate.is_by_key)
    )
    if is_by_turn and case.disturbed is not None:
        processes = {claim.claimed.process for claim in _all_claims(case)}
        yield from unequal_shares(case.timed_claims, 1 + len(processes), case.disturbed)


def claims_keep_the_rate(case: Case) -> Iterator[str]:
    """Check that no claim takes more tokens than its token bucket or fixed window has."""
    if case.rate is not None:
        yield from find_overdrafts(case.tables.claims, case.rate)


def rates_are_used(case: Case) -> Iterator[str]:
    """Check that claims use nearly all that a rate allows while work waits."""
    if case.rate is None or case.disturbed is None:
        return
    throttled = {line.outcome for line in case.lines if line.event == THROTTLED}
    claims = [claim for claim in case.timed_claims if str(claim.consumer) not in throttled]
    share = used_share(claims, case.rate, case.disturbed)
    if share is not None and share < USED_SHARE:
        yield f"{share:.1%} of the rate was used while work waited"


def jobs_in_flight_keep_the_bound(case: Case) -> Iterator[str]:
    """Check that at no instant more jobs are surely held than the concurrency limit allows."""
    bound, is_shared = case.in_flight
    if not bound:
        return
    changes: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for claim in _all_claims(case):
        since, until = claim.claimed.at, claim.surely_until
        holder = "the group" if is_shared else str(case.tables.consumers.get(claim.job))
        if since < until:
            changes[holder] += [(since, 1), (until, -1)]
    for holder, own in changes.items():
        held = accumulate(change for _at, change in sorted(own))
        if (most := max(held)) > bound:
            yield f"{most} jobs of {holder} were in flight at once, and the bound is {bound}"


def throttles_hold(case: Case) -> Iterator[str]:
    """Check that no job is claimed between the commit and the end of its consumer's throttle."""
    throttles: defaultdict[str, list[Line]] = defaultdict(list)
    for line in case.lines:
        if line.event == THROTTLED:
            throttles[line.outcome].append(line)
    for claim in _all_claims(case):
        consumer, claimed = str(case.tables.consumers.get(claim.job)), claim.claimed
        if any(
            line.at < claimed.since and claimed.at < line.since + line.seconds
            for line in throttles[consumer]
        ):
            yield f"{claim.job} was claimed while consumer {consumer} was throttled"


def nothing_runs_twice_without_cause(case: Case) -> Iterator[str]:
    """Check that a job runs again only if its holder asked, was killed, or lost the lease."""
    for job, claims in case.claims.by_job.items():
        runs = [claim for claim in claims if claim.started]
        for claim in runs:
            if len(claim.started) > 1:
                yield f"{job} ran {len(claim.started)} times under {claim.lease_token}"
        for first, second in pairwise(runs):
            if not (first.may_have_returned or _was_taken(first, second)):
                text = f"{job} ran under {second.lease_token}"
                yield f"{text}, though {first.lease_token} had run it undisturbed"


def _was_taken(first: JobClaim, second: JobClaim) -> bool:
    return first.let_go < NEVER or first.leased_until <= second.claimed.at


def only_what_started_is_charged(case: Case) -> Iterator[str]:
    """Check that a retry is counted for a run that failed or was lost, never for a waiting job.

    A killed process may have started jobs without a line about it, at most as many as it has
    threads.
    """
    unwritten: Counter[int] = Counter()
    for first, _second, charged in _charges(case):
        if first.killed_at < NEVER:
            unwritten[first.claimed.process] += not first.started
        elif charged > 1 or not first.started:
            text = f"{first.job} was charged {charged} for {first.lease_token}"
            yield f"{text}, which had not started it"
    for process, count in unwritten.items():
        if count > case.threads:
            yield f"{count} jobs were charged for {process}, which had not started them"


def _charges(case: Case) -> Iterator[tuple[JobClaim, JobClaim, int]]:
    """Yield each two successive claims of a job, and how many retries were counted in between.

    Pairs are left out if no retry was counted, if a claim between them left no line, or if an HTTP
    client was frozen or killed while it held the job.
    """
    for first, second in chain.from_iterable(map(pairwise, case.claims.by_job.values())):
        charged = second.claimed.retry_count - first.claimed.retry_count
        is_gap = second.claimed.deliveries - first.claimed.deliveries > 1
        if charged > 0 and not is_gap and not _was_cut_off(case, first, second):
            yield first, second, charged


def _was_cut_off(case: Case, first: JobClaim, second: JobClaim) -> bool:
    """Return True if an HTTP client was frozen or killed while it held the job.

    The server can't know which jobs of such a client have started, and charges all of them.
    """
    process, until = first.claimed.process, second.claimed.since
    is_concerned = case.disturbances.concern_process(process, first.claimed.since, until)
    return process in case.clients and is_concerned


def unrelated_jobs_do_not_wait(case: Case) -> Iterator[str]:
    """Check that no job waits for longer than a lease because of a fault of other jobs."""
    if case.bounds is None:
        return
    for wait in case.waits:
        bound = case.bounds.lease_duration * (1 + wait.lost_claims)
        if wait.seconds > bound:
            yield f"{wait.job} waited {wait.seconds:.1f} s to be {wait.text}, at {wait.since:.1f}"


def living_processes_stay(case: Case) -> Iterator[str]:
    """Check that no process ends, and none is replaced, unless the director killed it."""
    yield from case.replaced


def runs_end_with_their_leases(case: Case) -> Iterator[str]:
    """Check that no handler of an HTTP client goes on after its lease."""
    yield from late_runs(_all_claims(case))


def readiness_is_true(case: Case) -> Iterator[str]:
    """Check that `/readyz` shows within the documented time whether a process can work."""
    if case.bounds is not None:
        yield from untrue_answers(case.lines, case.disturbances, case.bounds)
        yield from deaf_processes(case.lines, case.disturbances, case.bounds)


def _all_claims(case: Case) -> Iterator[JobClaim]:
    for claims in case.claims.by_job.values():
        yield from claims


RULES: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    nothing_is_lost,
    nothing_is_made_up,
    all_is_settled,
    claims_settle_once,
    answers_are_true,
    leases_do_not_overlap,
    keys_run_one_at_a_time,
    keys_keep_their_slots,
    keys_share,
    claims_keep_the_rate,
    rates_are_used,
    jobs_in_flight_keep_the_bound,
    throttles_hold,
    nothing_runs_twice_without_cause,
    only_what_started_is_charged,
    unrelated_jobs_do_not_wait,
    living_processes_stay,
    runs_end_with_their_leases,
    readiness_is_true,
)


def find_faults(case: Case) -> dict[str, list[str]]:
    """Return the sentences of every rule that the case breaks, by the name of the rule."""
    sentences = {rule.__name__: list(rule(case)) for rule in RULES}
    return {rule: texts for rule, texts in sentences.items() if texts}
