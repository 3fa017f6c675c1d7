"""Flows of a client: the requests of a fetch, a settlement, a renewal or a publish.

`calls` explains flows. Each parameter `until` is a monotonic time, after which a flow gives up.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pulljobs.client import bodies
from pulljobs.client.bodies import (
    WAITING_SHARE,
    Draft,
    Job,
    Limits,
    Outcome,
    Progress,
    Pulled,
    Receipt,
    Settlement,
    Status,
    now,
)
from pulljobs.client.calls import Answer, Call, Flow, Pause, checked
from pulljobs.client.errors import BadRequest, ClientError, LeaseLost, NotFound, Unreachable
from pulljobs.client.strategies import Delay, exponential, full_jitter

MARGIN: Final = 0.1
"""Seconds by which a long poll ends before the caller's deadline."""
GRACE: Final = 5.0
"""Seconds to wait for an answer beyond the time that the request asks for."""
AGAIN: Final[Delay] = full_jitter(exponential(0.2, 5.0), least=0.05)
MOST_OUTCOMES: Final = 100
MOST_LINES: Final = 100
MOST_BYTES: Final = 4 * 1024 * 1024
SHUTS_DOWN: Final = "server_shutdown"
EARLY: Final = 0.05
"""Seconds within which no long poll ends without jobs, unless the server or a proxy ends it."""
TOO_LARGE: Final = 413
LOCKED_EVERY: Final = 1.0
"""Seconds after which an outcome or a renewal is sent again that met a locked row."""
LOCKED: Final = "Another transaction on the broker's side keeps the row of the job locked."

T = TypeVar("T")


@dataclass(slots=True)
class Claims:
    """Jobs that a fetch has claimed so far, to release them if it is interrupted."""

    jobs: list[Job] = field(default_factory=list)
    request_id: str | None = None
    """Request id of the pull whose answer has not come yet, or None if there is none."""


class Reply(NamedTuple):
    """Answer to a request that may have been repeated."""

    answer: Answer
    repeated: bool
    """True if the broker may have acted on an earlier attempt, which got no answer or an error."""


def ask(call: Call | Callable[[], Call], until: float, again: Delay = AGAIN) -> Flow[Reply]:
    """Send a request, and repeat it after pauses until there is an answer.

    Raise Unreachable if an attempt at `until`, a monotonic time, fails as well. Raise Refused at
    once. If `call` is a function, it makes a new request for each attempt. `again` returns the
    seconds of each pause.
    """
    repeated = False
    for attempt in count(1):
        try:
            answer = yield call() if callable(call) else call
            assert answer is not None
            return Reply(checked(answer), repeated)
        except Unreachable as error:
            left = until - now()
            if left <= 0:
                raise
            repeated = repeated or error.was_sent
            yield Pause(min(max(again(attempt), error.retry_after), left))
    raise AssertionError("not reached")


def info(path: str, until: float) -> Flow[Answer]:
    """Request the counts and limits of the consumer at this path."""
    return (yield from ask(Call("GET", f"{path}/info"), until)).answer


def limits(path: str, until: float) -> Flow[Limits]:
    """Read the broker's limits for pulls. Return the defaults after a NotFound."""
    try:
        return bodies.limits((yield from info(path, until)))
    except NotFound:
        return Limits()


def pull(
    path: str,
    limits: Limits,
    batch: int,
    until: float,
    claims: Claims,
    expires: float = 0.0,
    grace: float = GRACE,
) -> Flow[Pulled]:
    """Pull once, and note the request id and the jobs in `claims`.

    The broker waits up to `expires` seconds for jobs, and its answer may take `grace` seconds more.
    A repeat after a lost answer has the same request id, so it returns the same jobs.
    """
    asked_at = now()
    request_id = claims.request_id = uuid4().hex

    def call() -> Call:
        """Return the request of the next attempt. The broker waits no longer than until `until`."""
        left = max(0.0, min(expires, until - now() - MARGIN))
        body = bodies.pull(batch, request_id, expires=left)
        return Call("POST", f"{path}/pull", body, left + grace)

    reply = yield from ask(call, until)
    pulled = bodies.pulled(reply.answer, limits, asked_at)
    claims.jobs += pulled.jobs
    claims.request_id = None
    return pulled


def give_back(path: str, limits: Limits, claims: Claims, seconds: float) -> Flow[None]:
    """Release the jobs of an interrupted fetch, with new attempts for `seconds` at most.

    To learn the jobs of a pull without an answer, the pull is sent again with its request id. If it
    had claimed none, a limit of one byte keeps it from claiming jobs now.
    """
    until = now() + seconds
    jobs = list(claims.jobs)
    if claims.request_id is not None:
        body = bodies.pull(1, claims.request_id, max_bytes=1)
        reply = yield from ask(Call("POST", f"{path}/pull", body, GRACE), until)
        jobs += bodies.pulled(reply.answer, limits, now()).jobs
    for some in parts(jobs, min(MOST_OUTCOMES, limits.max_batch)):
        released = bodies.ack(Settlement(job, Outcome.RELEASE) for job in some)
        yield from ask(Call("POST", f"{path}/ack", released, GRACE), until)


def fetch(
    path: str, limits: Limits, wanted: int, timeout: float, claims: Claims
) -> Flow[list[Job]]:
    """Pull up to `wanted` jobs that are ready. If there are none, wait `timeout` seconds for some.

    The jobs are noted in `claims`, too.
    """
    until = now() + timeout
    jobs = yield from _queued_jobs(path, limits, wanted, until, claims)
    batch = min(wanted, limits.max_batch)
    while not jobs and (left := until - now() - MARGIN) > 0:
        expires, asked_at = min(left, limits.max_expires), now()
        pulled = yield from pull(path, limits, batch, until, claims, expires)
        jobs = pulled.jobs
        if ended_early(pulled, asked_at, expires):
            yield Pause(min(AGAIN(3), left))
    return jobs


def ended_early(pulled: Pulled, asked_at: float, expires: float) -> bool:
    """Return True if a long poll ended at once without jobs, so that a pause comes next.

    It is also True if the server shuts down. Otherwise the client would send hundreds of pulls a
    second to a server that does not let them wait.
    """
    is_early = min(expires, EARLY) > now() - asked_at
    return not pulled.jobs and (pulled.reason == SHUTS_DOWN or is_early)


def _queued_jobs(
    path: str, limits: Limits, wanted: int, until: float, claims: Claims
) -> Flow[list[Job]]:
    """Pull up to `wanted` jobs that are ready, by several requests if the broker's limit is less.

    Return the jobs so far if another request fails, or would use up much of their lease. `until`
    is the monotonic time at which the requests end.
    """
    jobs: list[Job] = []
    grace = GRACE
    while len(jobs) < wanted:
        batch = min(wanted - len(jobs), limits.max_batch)
        try:
            more = (yield from pull(path, limits, batch, until, claims, grace=grace)).jobs
        except ClientError:
            if jobs:
                return jobs
            raise
        jobs += more
        if len(more) < batch:
            break
        grace = min(GRACE, jobs[0].lease_seconds * WAITING_SHARE)
        until = min(until, jobs[0].deadline - jobs[0].lease_seconds + grace)
    return jobs


def settle(path: str, settlement: Settlement, until: float) -> Flow[None]:
    """Settle a job. Raise LeaseLost if nothing was written, Unreachable if its row stays locked."""
    [status] = yield from settle_all(path, [settlement], until)
    if status is Status.LOCKED:
        raise Unreachable(LOCKED)
    if status is not Status.OK:
        raise LeaseLost(settlement.job.id)


def settle_all(path: str, settlements: Sequence[Settlement], until: float) -> Flow[list[Status]]:
    """Settle jobs and return their statuses.

    A job whose row another transaction has locked is tried again up to `until`. After a lost
    answer, an outcome that can't be repeated counts as settled.
    """
    statuses = [Status.LOCKED] * len(settlements)
    left: Sequence[int] = range(len(settlements))
    while left:
        body = bodies.ack(settlements[index] for index in left)
        reply = yield from ask(Call("POST", f"{path}/ack", body), until)
        by_index = dict(zip(left, bodies.statuses(reply.answer, len(left)), strict=True))
        for index, status in by_index.items():
            is_unknown = reply.repeated and not settlements[index].can_be_repeated
            was_settled = is_unknown and status is not Status.LOCKED
            statuses[index] = Status.OK if was_settled else status
        left = [index for index in left if statuses[index] is Status.LOCKED]
        if not left or now() >= until:
            break
        yield Pause(min(LOCKED_EVERY, until - now()))
    return statuses


def renew(
    path: str, job: Job, report: Progress | None, seconds: float | None, until: float
) -> Flow[float]:
    """Renew the lease of a job and report its progress.

    Return the monotonic time at which the lease then ends. Raise LeaseLost if the lease is lost,
    Unreachable if its row stays locked.
    """
    call = Call("POST", f"{path}/renew", bodies.renew([(job, report)], seconds))
    while True:
        answer = (yield from ask(call, until)).answer
        [left] = bodies.renewals(answer, 1)
        if isinstance(left, float):
            return answer.sent_at + left
        if left is not Status.LOCKED:
            raise LeaseLost(job.id)
        if now() >= until:
            raise Unreachable(LOCKED)
        yield Pause(min(LOCKED_EVERY, until - now()))


def publish(channel: str, drafts: Sequence[Draft], seconds: float) -> Flow[list[Receipt]]:
    """Publish drafts and return a receipt for each, in their order.

    Each request is tried for `seconds`. All drafts are encoded before the first request. If a
    request is repeated after a lost answer, its duplicates count as accepted.
    """
    made: list[Receipt] = []
    path = f"channel/{quote(channel, safe='')}/broadcast-batch"
    try:
        for ids, lines in list(_batches(drafts)):
            yield from _publish(path, ids, lines, seconds, made)
    except ClientError as error:
        error.receipts = made
        raise
    return made


def _publish(
    path: str, ids: Sequence[str], lines: Sequence[bytes], seconds: float, made: list[Receipt]
) -> Flow[None]:
    """Publish lines in one request, and add their receipts to `made`.

    If they are too large together, publish each half: producers do not know the broker's limits.
    """
    call = Call("POST", path, b"\n".join(lines), 2 * GRACE)
    try:
        reply = yield from ask(call, now() + seconds)
    except BadRequest as error:
        middle = len(lines) // 2
        if error.status != TOO_LARGE:
            raise
        if not middle:
            made.append(Receipt(ids[0], "too_large", str(error)))
            return
        yield from _publish(path, ids[:middle], lines[:middle], seconds, made)
        yield from _publish(path, ids[middle:], lines[middle:], seconds, made)
    else:
        receipts = bodies.receipts(reply.answer, ids)
        made += map(_accepted, receipts) if reply.repeated else receipts


def parts(whole: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """Yield consecutive slices of a sequence, each of at most `most` items."""
    for start in range(0, len(whole), most):
        yield whole[start : start + most]


def _accepted(receipt: Receipt) -> Receipt:
    return receipt._replace(status="accepted") if receipt.duplicate else receipt


def _batches(drafts: Sequence[Draft]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Yield batches that fit into one request each: the ids of the messages, and their lines."""
    ids: list[str] = []
    lines: list[bytes] = []
    size = 0
    for draft in drafts:
        id = draft.message_id or uuid4().hex
        line = bodies.line(draft, id)
        if lines and (len(lines) == MOST_LINES or size + len(line) > MOST_BYTES):
            yield ids, lines
            ids, lines, size = [], [], 0
        ids.append(id)
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield ids, lines
