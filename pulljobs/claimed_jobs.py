"""Job object that a handler gets, with the lease of its claim and the options of its handler."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, sync_to_async

from pulljobs.engine import outcomes
from pulljobs.engine.circuit import FAILURE, Result, ResultCounter
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.engine.run_times import RunTime
from pulljobs.engine.throttle import Throttle, seconds_of
from pulljobs.errors import LONGEST_DELAY, ConfigurationError, Retry
from pulljobs.models.options import check_function, name_of
from pulljobs.outcome_texts import clean, encoded
from pulljobs.run_limits import RunLimits
from pulljobs.states import State
from pulljobs.storage import progress
from pulljobs.storage.rows import HeldJob, StoredMessage

_parsed: Final = json.JSONDecoder().raw_decode
NO_LIMITS: Final = RunLimits()


class AckPolicy(StrEnum):
    """Rule by which the return or an error of a handler becomes the outcome of its job.

    Retry, Snooze and Discard are no errors: they choose the outcome under each policy.
    """

    NACK_ON_ERROR = "nack_on_error"
    """Deliver, but after an exception retry by the consumer's strategy."""
    REJECT_ON_ERROR = "reject_on_error"
    """Deliver, but after an exception reject: the job is DEAD."""
    ACK = "ack"
    """Deliver, exception or not."""
    ACK_FIRST = "ack_first"
    """Deliver before the handler runs: at most once."""
    MANUAL = "manual"
    """Write the outcome that the handler reported by a call, and retry if it called none."""


@dataclass(slots=True, kw_only=True)
class Grant:
    """Lease, handler and circuit that the jobs of a claim share. Times are monotonic seconds."""

    handler: "Handler"
    lease_duration: timedelta
    claimed_at: float
    hard_end: float = float("inf")
    """Time beyond which no renewal keeps the lease."""
    start_by: float = float("inf")
    """Latest start: a job that starts later would lose its lease before its time limit."""
    renew_after: float = float("inf")
    """Seconds after a claim or a renewal at which the worker renews the lease, by default never."""
    renew: Callable[["ClaimedJob"], bool]
    stopping: Callable[[], bool]
    run_time: RunTime = field(default_factory=RunTime)
    circuit: ResultCounter = field(default_factory=ResultCounter)
    ticket: int = 0
    """Number of the circuit's state before the claim, by which it ignores outdated results."""
    throttle: Throttle = field(default_factory=Throttle)
    deadline: float = field(init=False)
    """End of the lease, unless it is renewed."""
    renew_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline, self.renew_at = self.times(self.claimed_at, self.hard_end)

    def times(self, since: float, hard_end: float) -> tuple[float, float]:
        """Return the end of a lease that is claimed or renewed at `since`, and when to renew it.

        No lease ends later than `hard_end`.
        """
        seconds = self.lease_duration.total_seconds()
        return min(since + seconds, hard_end), since + self.renew_after


class ClaimedJob:
    """Claimed job, as its handler sees it.

    The first call of `ack`, `nack` or `reject` decides its outcome. The worker writes the outcome
    after the end of the handler.
    """

    __slots__ = (
        "_grant", "_limits", "_message", "_row", "begun_at", "deadline", "end_by", "failure",
        "handler", "hard_end", "held", "is_settled", "renew_at", "run_seconds", "run_time",
        "settlement", "taken_away", "verdict", "went_to",
    )  # fmt: skip

    def __init__(self, row: HeldJob, message: StoredMessage, held: Held, grant: Grant) -> None:
        self._row, self._message, self._grant = row, message, grant
        self._limits: RunLimits | None = None
        self.held, self.handler, self.hard_end = held, grant.handler, grant.hard_end
        self.deadline, self.renew_at, self.run_time = grant.deadline, grant.renew_at, grant.run_time
        self.end_by = float("inf")  # Monotonic time by which the worker cancels the handler.
        self.begun_at: float | None = None
        self.run_seconds: float | None = None
        self.settlement: Settlement | None = None
        self.taken_away = self.is_settled = False
        self.failure = ""  # Name of the exception that the handler raised.
        self.verdict: Result | None = None  # For the circuit, in place of the outcome's result.
        self.went_to: State | None = None  # QUEUED or DEAD, once the handler has settled the job.

    @property
    def id(self) -> int:
        """Id of the job, as a number."""
        return self._row.id

    @property
    def lease_duration(self) -> timedelta:
        """Time from a claim or a renewal of the job to the end of its lease."""
        return self._grant.lease_duration

    def report_end(self, result: Result) -> None:
        """Report the handler's result to the consumer's circuit. The worker calls this once."""
        grant = self._grant
        # The circuit is nearly always calm: then no thread takes the lock that all threads share.
        if result is FAILURE or not grant.circuit.is_calm:
            grant.circuit.note_result(grant.ticket, self, result)

    @property
    def limits(self) -> RunLimits:
        """Limits of retries and time from the payload, in place of the handler's and consumer's."""
        if self._limits is None:
            limits_of = self.handler.limits_of
            self._limits = NO_LIMITS if limits_of is None else limits_of(self._message.payload)
        return self._limits

    @property
    def timeout(self) -> timedelta | None:
        """Time limit of the handler for this job, or None for `HANDLER_TIMEOUT`."""
        return self.limits.timeout or self.handler.timeout

    def limited(self, outcome: Settlement) -> Settlement:
        """Return the outcome, changed by the job's own `limits` if it is a retry."""
        return self.limits.apply(outcome, self.retry_count)

    @property
    def message_id(self) -> int:
        """Id of the message in the database."""
        return self._row.message_id

    @property
    def client_message_id(self) -> str | None:
        """Message id that the publisher gave, or None if it gave none."""
        return self._message.client_message_id

    @property
    def payload(self) -> bytes:
        """Payload of the message, as it was published."""
        return self._message.payload

    @property
    def text(self) -> str:
        """Payload as text. UnicodeDecodeError is raised if it is not UTF-8."""
        return self._message.payload.decode()

    def json(self) -> Any:
        """Return the payload parsed as JSON, or raise ValueError if it is not JSON."""
        payload = self._message.payload
        # json.loads spends two thirds of its time on other encodings and on surrounding space.
        try:
            text = payload.decode()
            value, end = _parsed(text)
        except ValueError:
            return json.loads(payload)
        return value if end == len(text) else json.loads(payload)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the message."""
        return self._message.headers

    @property
    def content_type(self) -> str:
        """Content type of the payload."""
        return self._message.content_type

    @property
    def published_at(self) -> datetime:
        """Time of the publish by the database's clock, aware."""
        return self._message.published_at

    @property
    def key(self) -> str | None:
        """Key of the message, or None if it has none."""
        return self._message.key

    @property
    def priority(self) -> int:
        """Priority of the job. Higher numbers are claimed first."""
        return self._row.priority

    @property
    def retry_count(self) -> int:
        """Number of charged retries before this run."""
        return self._row.retry_count

    @property
    def deliveries(self) -> int:
        """Number of claims of the job, with this one and without those that were released."""
        return self._row.deliveries

    @property
    def is_suspect(self) -> bool:
        """True if an earlier run may have crashed its process or blocked the event loop."""
        return self._row.suspect

    @property
    def remaining(self) -> timedelta:
        """Time until the lease ends by this process's own clock. The worker keeps renewing it."""
        return timedelta(seconds=max(0.0, self.deadline - time.monotonic()))

    @property
    def stopping(self) -> bool:
        """True once the worker is asked to stop: the handler should end soon, or raise `Snooze`."""
        return self._grant.stopping()

    @property
    def lost(self) -> bool:
        """True once the lease is lost or has ended: the handler should raise LeaseLost.

        If it returns, and the lease has ended but no other claim has the job, it is delivered.
        """
        return self.taken_away or time.monotonic() >= self.deadline

    def is_late_at(self, now: float) -> bool:
        """Return True if its lease, circuit or throttle forbids a start at monotonic time `now`."""
        grant = self._grant
        is_over = self.taken_away or now >= min(self.deadline, grant.start_by)
        is_held = grant.throttle.holds_back(self.key, now)
        return is_over or is_held or grant.circuit.holds_back(grant.ticket, self)

    def renew(self) -> bool:
        """Renew the lease now, for its full duration. Return False if it is lost.

        While a transaction has it locked, or the handler is in one, the worker renews it soon.
        """
        return self._grant.renew(self)

    async def arenew(self) -> bool:
        """Renew the lease from an async handler. Return False if it is lost."""
        return await sync_to_async(self.renew)()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report that `done` of `total` units are done, with a note for pages.

        The worker writes the newest report of each job once a second. ValueError is raised unless
        amounts are finite and not negative.
        """
        progress.report(self.held, done, total, note)

    def throttle(self, wait: timedelta | datetime, *, key: bool = False) -> None:
        """Let no process claim jobs of this consumer for a duration, or until an aware time.

        With `key=True` only jobs of this job's key wait, if the consumer's keys take turns.
        Handlers that run go on, the other claimed jobs are released. The worker writes the throttle
        before this job's outcome, and a throttle that lasts longer stays.
        """
        self._grant.throttle.ask(seconds_of(wait), (self.key or "") if key else None)

    def ack(self, result: Any = None) -> bool:
        """Deliver the job after its run. Return False if it has an outcome or no lease.

        Under ACK_FIRST it has one. The worker writes the outcome, if the lease holds the job then.
        Raise TypeError or ValueError if the result is not JSON, or larger than `MAX_RESULT_BYTES`.
        """
        return self._settle(lambda: outcomes.deliver(self.held, encoded(result)))

    def nack(self, after: timedelta | None = None, *, error: str = "nack") -> bool:
        """Retry the job after its run and the given delay, by default the consumer's own.

        The retry is charged: a job without retries left is DEAD. Return False if the job has an
        outcome already, or has lost its lease.
        """
        retry = Retry(after=after, reason=error)
        return self._settle(lambda: outcomes.retry(self.held, clean(retry.reason), after=after))

    def reject(self, reason: str = "rejected by its handler") -> bool:
        """Make the job DEAD after its run. Return False if it has an outcome or no lease."""
        return self._settle(lambda: outcomes.reject(self.held, clean(str(reason))))

    def extend(self, since: float) -> None:
        """Note that the lease was renewed at `since`, a time of the monotonic clock."""
        self.deadline, self.renew_at = self._grant.times(since, self.hard_end)
        if self.is_settled:  # Checked last: another thread may have settled the job just now.
            self.mark_settled()

    def mark_settled(self) -> None:
        """Note that the outcome is written already, so that the job has no lease to lose."""
        self.is_settled = True
        self.hard_end = self.deadline = time.monotonic() + LONGEST_DELAY.total_seconds()
        self.renew_at = float("inf")

    def _settle(self, make: Callable[[], Settlement]) -> bool:
        has_ended = self.run_seconds is not None  # And a thread of the handler goes on.
        if self.settlement is not None or self.is_settled or self.taken_away or has_ended:
            return False
        self.settlement = make()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """Function that runs the jobs of one consumer, with the options of `@handler`."""

    channel: str
    consumer: str
    function: Callable[[ClaimedJob], Any]
    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    transactional: bool = False
    timeout: timedelta | None = None
    on_giving_up: Callable[[ClaimedJob], Any] | None = None
    backoff: bool = True
    defaults: dict[str, Any] = field(default_factory=dict)
    """Fields for the row of the consumer, where the row is created from code."""
    task_of: Callable[[bytes], str] | None = None
    """Function from a payload to its Django task, so that each task has a circuit of its own."""
    limits_of: Callable[[bytes], RunLimits] | None = None
    """Function from a payload to the limits of its run."""
    is_fenced: bool = False
    """True if each write of the function checks the lease_token: it may run twice without harm."""
    names: tuple[str, str] = field(init=False)
    """Names of the channel and of the consumer. They are kept, because every job reads them."""
    is_async: bool = field(init=False)
    """True if the handler runs on the event loop."""

    def __post_init__(self) -> None:
        check_function("@handler", self.function)
        called = getattr(self.function, "__call__", None)  # noqa: B004  of an object, its method
        is_async = iscoroutinefunction(self.function) or iscoroutinefunction(called)
        object.__setattr__(self, "ack_policy", _policy(self.function, self.ack_policy))
        object.__setattr__(self, "names", (self.channel, self.consumer))
        object.__setattr__(self, "is_async", is_async)

    @property
    def path(self) -> str:
        """Consumer path, `channel/consumer`."""
        return f"{self.channel}/{self.consumer}"

    @property
    def selectors(self) -> set[str]:
        """Values of the settings ONLY and EXCLUDE that select the handler: its channel and path."""
        return {self.channel, self.path}


def _policy(function: Callable[..., Any], given: AckPolicy | str) -> AckPolicy:
    try:
        return AckPolicy(given)
    except ValueError as error:
        raise ConfigurationError(
            f"{name_of(function)}: {given!r} is no ack_policy: use one of {', '.join(AckPolicy)}."
        ) from error
