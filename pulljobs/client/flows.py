"""What a client does, each once, for the synchronous and the asynchronous side."""

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote
from uuid import uuid4

from pulljobs.client import bodies
from pulljobs.client.bodies import Draft, Job, Limits, Pulled, Receipt, Status, Word, now
from pulljobs.client.calls import Answer, Call, Flow, Pause, checked
from pulljobs.client.errors import BadRequest, ClientError, LeaseLost, NotFound, Unreachable
from pulljobs.client.strategies import Delay, exponential, full_jitter

MARGIN: Final = 0.1
"""Seconds by which a pull that lingers ends before the caller's patience."""
GRACE: Final = 5.0
"""Seconds for which an answer is waited longer than it should take."""
AGAIN: Final[Delay] = full_jitter(exponential(0.2, 5.0), least=0.05)
MOST_WORDS: Final = 100
MOST_LINES: Final = 100
MOST_BYTES: Final = 4 * 1024 * 1024
SHUTS_DOWN: Final = "server_shutdown"
TOO_LARGE: Final = 413

T = TypeVar("T")


class Told(NamedTuple):
    answer: Answer
    repeated: bool
    """An earlier request may have been done already, and its answer lost."""


def insist(call: Call | Callable[[], Call], until: float, again: Delay = AGAIN) -> Flow[Told]:
    """Repeat until there is an answer; a last time when the time is over, then Unreachable."""
    repeated = False
    for attempt in count(1):
        try:
            answer = yield call() if callable(call) else call
            assert answer is not None
            return Told(checked(answer), repeated)
        except Unreachable as error:
            left = until - now()
            if left <= 0:
                raise
            repeated = repeated or error.was_sent
            yield Pause(min(max(again(attempt), error.retry_after), left))
    raise AssertionError("not reached")


def info(path: str, until: float) -> Flow[Answer]:
    return (yield from insist(Call("GET", f"{path}/info"), until)).answer


def limits(path: str, until: float) -> Flow[Limits]:
    """The usual ones of a broker that does not tell."""
    sent_at = now()
    try:
        return bodies.limits((yield from info(path, until)), sent_at)
    except NotFound:
        return Limits()


def pull(path: str, limits: Limits, batch: int, until: float, expires: float = 0.0) -> Flow[Pulled]:
    """One claim: when its answer is lost, the repeat brings the same jobs under the same token."""
    asked_at, request_id = now(), uuid4().hex

    def call() -> Call:
        """A repeat lingers for what is left of the time."""
        left = max(0.0, min(expires, until - now() - MARGIN))
        body = bodies.pull(batch, request_id, expires=left)
        return Call("POST", f"{path}/pull", body, left + GRACE)

    told = yield from insist(call, until)
    return bodies.pulled(told.answer, limits, asked_at)


def fetch(path: str, limits: Limits, wanted: int, timeout: float) -> Flow[list[Job]]:
    """What is there, without waiting; if that is nothing, what comes within the timeout."""
    until = now() + timeout
    jobs = yield from _what_is_there(path, limits, wanted, until)
    batch = min(wanted, limits.max_batch)
    while not jobs and (left := until - now() - MARGIN) > 0:
        expires = min(left, limits.max_expires)
        jobs, reason = yield from pull(path, limits, batch, until, expires)
        if reason == SHUTS_DOWN:
            yield Pause(min(AGAIN(3), left))
    return jobs


def _what_is_there(path: str, limits: Limits, wanted: int, until: float) -> Flow[list[Job]]:
    jobs: list[Job] = []
    while len(jobs) < wanted:
        batch = min(wanted - len(jobs), limits.max_batch)
        try:
            more = (yield from pull(path, limits, batch, until)).jobs
        except ClientError:
            if jobs:
                return jobs
            raise
        jobs += more
        if len(more) < batch:
            break
    return jobs


def settle(path: str, word: Word, until: float) -> Flow[None]:
    """LeaseLost if it can't be said any more."""
    [is_done] = yield from settle_all(path, [word], until)
    if not is_done:
        raise LeaseLost(word.job.id)


def settle_all(path: str, words: Sequence[Word], until: float) -> Flow[list[bool]]:
    """Whether each was done; of what can't be repeated it is believed, if an answer was lost."""
    told = yield from insist(Call("POST", f"{path}/ack", bodies.ack(words)), until)
    return [
        status is Status.OK or (told.repeated and not word.can_be_repeated)
        for word, status in zip(words, bodies.statuses(told.answer), strict=True)
    ]


def renew(path: str, job: Job, seconds: float | None, until: float) -> Flow[float]:
    """The seconds that the lease goes on."""
    call = Call("POST", f"{path}/renew", bodies.renew([job], seconds))
    [left] = bodies.remaining((yield from insist(call, until)).answer)
    if left is None:
        raise LeaseLost(job.id)
    return left


def publish(channel: str, drafts: Sequence[Draft], seconds: float) -> Flow[list[Receipt]]:
    """In their order; what is repeated because its answer was lost is accepted, not a duplicate.

    Each request is tried for so many seconds. Nothing is sent before all is written.
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
    """In halves, where the broker takes less: producers are not told its limits."""
    call = Call("POST", path, b"\n".join(lines), 2 * GRACE)
    try:
        told = yield from insist(call, now() + seconds)
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
        receipts = bodies.receipts(told.answer, ids)
        made += map(_accepted, receipts) if told.repeated else receipts


def parts(whole: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(whole), most):
        yield whole[start : start + most]


def _accepted(receipt: Receipt) -> Receipt:
    return receipt._replace(status="accepted") if receipt.duplicate else receipt


def _batches(drafts: Sequence[Draft]) -> Iterator[tuple[list[str], list[bytes]]]:
    """Lines up to the limits of a request."""
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
