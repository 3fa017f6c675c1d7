"""Telemetry events: results of publishes, claims, settlements and loops, emitted after the commit.

    JobsPublished   messages and jobs of one publish
    MessageHeldBack a scheduled message that publishing refused when its time came
    JobsClaimed     jobs of one claim
    ClaimLimited    a claim that got less than it asked for, because of a limit of the consumer
    HandlersRan     run times of the handlers of a consumer that ended since the last event
    JobsFinished    jobs whose outcomes were written together, by event and new state
    LeasesLost      outcomes that were not written, because the lease was lost
    JobsExpired     jobs whose lease had ended, by new state
    JobRefused      an outcome that the database refused
    JobFailed       a handler raised
    HandlerSilent   a handler with the ack policy `manual` returned without an outcome
    JobTimedOut     a handler ran for longer than it may
    LoopBlocked     an async handler that blocks the event loop, or may
    GivingUpFailed  an `on_giving_up` raised
    PushAnswered    the answer to a POST to a push consumer
    CircuitChanged  the circuit of a consumer or task changed its level
    LoopFailed      a loop's pass failed and will be tried again
    LeftBehind      jobs that a worker had to leave in flight when it stopped

A recorder is a callable that takes an event. Labels are channel, consumer and event, never ids, and
empty where they are not known. No event has payloads or tokens.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

logger = logging.getLogger("pulljobs")


@dataclass(frozen=True, slots=True)
class JobsPublished:
    channel: str
    messages: int
    jobs: int


@dataclass(frozen=True, slots=True)
class MessageHeldBack:
    channel: str
    error: str


@dataclass(frozen=True, slots=True)
class JobsClaimed:
    channel: str
    consumer: str
    jobs: int
    waits: Sequence[float] = ()
    """Seconds from the publish to a job's first claim, or its first one after a redrive."""


@dataclass(frozen=True, slots=True)
class ClaimLimited:
    channel: str
    consumer: str
    reason: str
    """`max_in_flight`, `rate_limited`, `throttled` or `key_limited`."""
    wait_seconds: float = 0.0
    """Seconds until a claim may get more, or 0 if the limit can't know that."""


@dataclass(frozen=True, slots=True)
class HandlersRan:
    channel: str
    consumer: str
    seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class JobsFinished:
    ends: Mapping[tuple[str, str], int]
    """Number of jobs by event and new state."""
    channel: str = ""
    consumer: str = ""


@dataclass(frozen=True, slots=True)
class LeasesLost:
    jobs: int
    channel: str = ""
    consumer: str = ""


@dataclass(frozen=True, slots=True)
class JobsExpired:
    channel: str
    consumer: str
    states: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class JobRefused:
    job: int
    channel: str
    consumer: str
    error: str


@dataclass(frozen=True, slots=True)
class JobFailed:
    job: int
    channel: str
    consumer: str
    error: str


@dataclass(frozen=True, slots=True)
class HandlerSilent:
    job: int
    channel: str
    consumer: str


@dataclass(frozen=True, slots=True)
class JobTimedOut:
    job: int
    channel: str
    consumer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class LoopBlocked:
    job: int
    channel: str
    consumer: str
    seconds: float


@dataclass(frozen=True, slots=True)
class GivingUpFailed:
    job: int
    channel: str
    consumer: str
    error: str


@dataclass(frozen=True, slots=True)
class PushAnswered:
    channel: str
    consumer: str
    answer: str
    """Class of the answer's status, such as `2xx`, or without one `timeout` or `unreachable`."""


@dataclass(frozen=True, slots=True)
class CircuitChanged:
    channel: str
    consumer: str
    state: str
    level: int
    seconds: float
    task: str = ""
    """Django task whose circuit it is, or empty for the circuit of the whole consumer."""


@dataclass(frozen=True, slots=True)
class LoopFailed:
    loop: str
    error: str
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class LeftBehind:
    jobs: tuple[int, ...]


def describe_error(error: BaseException) -> str:
    """Return the class and the first line of an error: its other lines may quote a row."""
    line = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


Recorder = Callable[[object], None]


@singledispatch
def log(event: object) -> None:
    """Log an event. This is the recorder that is always active."""
    logger.debug("%r", event)


@log.register
def _(event: JobsExpired) -> None:
    logger.info(
        "Leases of %s/%s were over; their jobs went to %s.",
        event.channel,
        event.consumer,
        _counts(event.states),
    )


@log.register
def _(event: MessageHeldBack) -> None:
    logger.warning(
        "A scheduled message of %s was refused and is tried again in a minute: %s",
        event.channel,
        event.error,
    )


@log.register
def _(event: LeasesLost) -> None:
    logger.warning("Lost the leases of jobs, whose outcomes were not written: %d.", event.jobs)


@log.register
def _(event: JobRefused) -> None:
    logger.error("The outcome of job %d can't be written: %s", event.job, event.error)


@log.register
def _(event: JobFailed) -> None:
    logger.warning(
        "Job %d of %s/%s failed: %s", event.job, event.channel, event.consumer, event.error
    )


@log.register
def _(event: HandlerSilent) -> None:
    logger.warning(
        "The handler of %s/%s ended job %d without ack, nack or reject; it is tried again.",
        event.channel,
        event.consumer,
        event.job,
    )


@log.register
def _(event: JobTimedOut) -> None:
    logger.warning(
        "Job %d of %s/%s ran for %.1f s, over its timeout; a later outcome of it is discarded.",
        event.job,
        event.channel,
        event.consumer,
        event.seconds,
    )


@log.register
def _(event: LoopBlocked) -> None:
    logger.error(
        "Job %d of %s/%s blocks the event loop, or may, for %.1f s now; it is tried again, alone.",
        event.job,
        event.channel,
        event.consumer,
        event.seconds,
    )


@log.register
def _(event: GivingUpFailed) -> None:
    logger.error(
        "on_giving_up of %s/%s failed for job %d, which is DEAD all the same: %s",
        event.channel,
        event.consumer,
        event.job,
        event.error,
    )


@log.register
def _(event: CircuitChanged) -> None:
    path = f"{event.channel}/{event.consumer}" + (event.task and f", task {event.task}")
    if event.level:
        logger.warning(
            "Jobs of %s fail: none is claimed for %.1f s, and then one (level %d).",
            path,
            event.seconds,
            event.level,
        )
    else:
        logger.info("Jobs of %s succeed again.", path)


@log.register
def _(event: LoopFailed) -> None:
    logger.warning(
        "%s failed and goes on in %.1f s: %s", event.loop, event.pause_seconds, event.error
    )


@log.register
def _(event: LeftBehind) -> None:
    logger.warning(
        "Stopped with jobs in flight that come back when their lease is over: %s",
        ", ".join(map(str, event.jobs)),
    )


_recorders: list[Recorder] = [log]


def record_with(recorder: Recorder) -> Callable[[], None]:
    """Add a recorder of events. Return a function that removes it."""
    _recorders.append(recorder)
    return lambda: _recorders.remove(recorder)


def is_counting() -> bool:
    """Return True if events of normal operation are needed, by a recorder or by a debug log.

    Callers skip the work for such events otherwise.
    """
    return len(_recorders) > 1 or logger.isEnabledFor(logging.DEBUG)


def emit(event: object) -> None:
    """Pass an event to every recorder. Exceptions of a recorder are only logged."""
    for recorder in _recorders:
        try:
            recorder(event)
        except Exception:
            logger.exception("A recorder failed over %s.", type(event).__name__)


def _counts(states: Mapping[str, int]) -> str:
    return ", ".join(f"{state} {count}" for state, count in sorted(states.items()))
