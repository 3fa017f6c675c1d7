"""Handlers: the functions that do jobs in process, and what they are given.

    # orders/pull_handlers.py, found by itself in every installed app
    @handler(channel="orders", consumer="invoicing")
    def invoice(job: ClaimedJob) -> None:
        Invoice.objects.create(order_id=job.json()["order"])

Return to deliver the job; what is returned is stored as its result. Raise `Retry` or `Discard` to
say what else shall happen; any other exception goes by the ack policy.
"""

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final

from asgiref.sync import iscoroutinefunction, sync_to_async
from django.utils.module_loading import autodiscover_modules

from pulljobs.conf import settings
from pulljobs.engine import outcomes, tracing
from pulljobs.engine.circuit import Circuit, Result
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.errors import LONGEST_DELAY, ConfigurationError, Retry
from pulljobs.models import Channel, Consumer, options
from pulljobs.states import State
from pulljobs.storage.rows import HeldJob, StoredMessage
from pulljobs.texts import clean, encoded

MODULE: Final = "pull_handlers"
FAILURE: Final = Result.FAILURE
FOREVER: Final = timedelta(days=36_500).total_seconds()
_parsed: Final = json.JSONDecoder().raw_decode


class AckPolicy(StrEnum):
    """What becomes of a job whose handler returned, or raised."""

    NACK_ON_ERROR = "nack_on_error"
    """Delivered; after an exception tried again by the consumer's strategy."""
    REJECT_ON_ERROR = "reject_on_error"
    """Delivered; after an exception dead."""
    ACK = "ack"
    """Delivered, exception or not."""
    ACK_FIRST = "ack_first"
    """Delivered before the handler runs: at most once."""
    MANUAL = "manual"
    """What the handler calls; if it calls nothing, tried again."""


@dataclass(slots=True, kw_only=True)
class Grant:
    """What the jobs of one claim have in common; times of this process's monotonic clock."""

    handler: "Handler"
    lease_duration: timedelta
    claimed_at: float
    hard_end: float = float("inf")
    start_by: float = float("inf")
    """Later it would not have all of its time: its lease would end first."""
    renew: Callable[["ClaimedJob"], bool]
    stopping: Callable[[], bool]
    circuit: Circuit = field(default_factory=lambda: Circuit(0, 0, 0))
    on_end: Callable[[Result], None] = lambda result: None
    """Told once of each job how its run ended, unless that changes nothing in the circuit."""
    deadline: float = field(init=False)
    renew_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.deadline, self.renew_at = self.times(self.claimed_at, self.hard_end)

    def times(self, since: float, hard_end: float) -> tuple[float, float]:
        """When a lease that runs from there is over, and when to renew it."""
        seconds = self.lease_duration.total_seconds()
        return min(since + seconds, hard_end), since + seconds / 3


class ClaimedJob:
    """One job in the hands of its handler."""

    __slots__ = (
        "_grant",
        "_message",
        "_row",
        "deadline",
        "handler",
        "hard_end",
        "held",
        "is_settled",
        "renew_at",
        "settlement",
        "taken_away",
        "verdict",
        "went_to",
    )

    def __init__(self, row: HeldJob, message: StoredMessage, held: Held, grant: Grant) -> None:
        self._row, self._message, self._grant = row, message, grant
        self.held, self.handler, self.hard_end = held, grant.handler, grant.hard_end
        self.deadline, self.renew_at = grant.deadline, grant.renew_at
        self.settlement: Settlement | None = None
        self.taken_away = self.is_settled = False
        self.verdict: Result | None = None
        """What its run tells of the next one, where its outcome does not say."""
        self.went_to: State | None = None
        """QUEUED or DEAD, once a retry of it was committed together with what its handler wrote."""

    @property
    def id(self) -> int:
        return self._row.id

    @property
    def lease_duration(self) -> timedelta:
        """How long one is."""
        return self._grant.lease_duration

    def tell_end(self, result: Result) -> None:
        """How its run ended, once: the circuit of its consumer goes by it."""
        grant = self._grant
        # Nearly always it is calm: so nobody takes the lock that all threads share.
        if result is FAILURE or not grant.circuit.is_calm:
            grant.on_end(result)

    @property
    def message_id(self) -> int:
        return self._row.message_id

    @property
    def client_message_id(self) -> str | None:
        """What its publisher called the message."""
        return self._message.client_message_id

    @property
    def payload(self) -> bytes:
        return self._message.payload

    @property
    def text(self) -> str:
        return self._message.payload.decode()

    def json(self) -> Any:
        payload = self._message.payload
        # To look for another encoding and for space around it takes two thirds of the time.
        try:
            text = payload.decode()
            value, end = _parsed(text)
        except ValueError:
            return json.loads(payload)
        return value if end == len(text) else json.loads(payload)

    @property
    def headers(self) -> dict[str, str]:
        return self._message.headers

    @property
    def content_type(self) -> str:
        return self._message.content_type

    @property
    def published_at(self) -> datetime:
        return self._message.published_at

    @property
    def key(self) -> str | None:
        return self._message.key

    @property
    def priority(self) -> int:
        return self._row.priority

    @property
    def retry_count(self) -> int:
        """How often it was tried again before this run."""
        return self._row.retry_count

    @property
    def deliveries(self) -> int:
        """How often it was claimed, this time counted."""
        return self._row.deliveries

    @property
    def is_suspect(self) -> bool:
        """It ran in a process that died."""
        return self._row.suspect

    @property
    def remaining(self) -> timedelta:
        """Of the lease, by this process's own clock; the worker renews it while it lives."""
        return timedelta(seconds=max(0.0, self.deadline - time.monotonic()))

    @property
    def stopping(self) -> bool:
        """The worker is asked to stop: end soon, or raise `Retry`."""
        return self._grant.stopping()

    @property
    def lost(self) -> bool:
        """Somebody else has the job now, or nobody: stop; what is done from now on is discarded."""
        return self.taken_away or time.monotonic() >= self.deadline

    def is_late_at(self, now: float) -> bool:
        """Whether it is too late to begin, for who has just read the monotonic clock."""
        return self.taken_away or now >= self.deadline or now >= self._grant.start_by

    def renew(self) -> bool:
        """Ask for a full new lease now; False: it is lost."""
        return self._grant.renew(self)

    async def arenew(self) -> bool:
        """The same, for async handlers."""
        return await sync_to_async(self.renew)()

    def ack(self, result: Any = None) -> bool:
        """Deliver it, whatever the policy; False: an earlier word on it stands."""
        return self._settle(lambda: outcomes.deliver(self.held, encoded(result)))

    def nack(self, after: timedelta | None = None, *, error: str = "nack") -> bool:
        """Try it again, after the consumer's own delay or the given one."""
        wish = Retry(after=after, reason=error)
        return self._settle(lambda: outcomes.retry(self.held, clean(wish.reason), after=wish.after))

    def reject(self, reason: str = "rejected by its handler") -> bool:
        """Give it up for dead."""
        return self._settle(lambda: outcomes.reject(self.held, clean(reason)))

    def extend(self, since: float) -> None:
        """The lease runs anew from that monotonic time, unless there is none any more."""
        self.deadline, self.renew_at = self._grant.times(since, self.hard_end)
        if self.is_settled:  # Asked last: another thread may have settled it just now.
            self.mark_settled()

    def mark_settled(self) -> None:
        """It is written before the handler's end: no lease to renew any more, and none to lose."""
        self.is_settled = True
        self.hard_end = self.deadline = time.monotonic() + FOREVER
        self.renew_at = float("inf")

    def _settle(self, say: Callable[[], Settlement]) -> bool:
        if self.settlement is not None:
            return False
        self.settlement = say()
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A registered function; `defaults` fill the consumer's row where code makes it."""

    channel: str
    consumer: str
    function: Callable[[ClaimedJob], Any]
    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR
    transactional: bool = False
    timeout: timedelta | None = None
    on_giving_up: Callable[[ClaimedJob], Any] | None = None
    backoff: bool = True
    defaults: dict[str, Any] = field(default_factory=dict)
    # These two are asked for with every job.
    place: tuple[str, str] = field(init=False)
    is_async: bool = field(init=False)
    """Whether it runs on the event loop."""

    def __post_init__(self) -> None:
        called = getattr(self.function, "__call__", None)  # noqa: B004  of an object, its method
        is_async = iscoroutinefunction(self.function) or iscoroutinefunction(called)
        object.__setattr__(self, "ack_policy", _policy(self.function, self.ack_policy))
        object.__setattr__(self, "place", (self.channel, self.consumer))
        object.__setattr__(self, "is_async", is_async)

    @property
    def names(self) -> set[str]:
        """What `--only` may call it by."""
        return {self.channel, f"{self.channel}/{self.consumer}"}


def traced(one: Handler) -> Handler:
    """The same, with spans around its calls if somebody traces."""
    function = tracing.handler(one.function, one.place, is_async=one.is_async)
    return one if function is one.function else replace(one, function=function)


_registered: dict[tuple[str, str], Handler] = {}


def handler(
    *,
    channel: str,
    consumer: str,
    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
    transactional: bool = False,
    timeout: timedelta | None = None,
    on_giving_up: Callable[[ClaimedJob], Any] | None = None,
    backoff: bool = True,
    **defaults: Any,
) -> Callable[[Callable[[ClaimedJob], Any]], Callable[[ClaimedJob], Any]]:
    """Let the function do the jobs of that consumer.

    With `transactional` the handler runs in a transaction of the jobs' database that ends with the
    settle: its writes and the settle are committed together, so its effects happen exactly once.
    `timeout` is how long it may run (None: `HANDLER_TIMEOUT`). `on_giving_up` is called once after
    its job died because retries or deliveries were used up; what it raises changes nothing.
    `backoff=False`: that some jobs fail tells nothing of the others, so these are not held back.
    Other keywords are fields of the consumer (`retry_strategy`, `max_retries`, `lease`, ...), used
    when its row is made, and by `syncconsumers --update`.
    """

    def register(function: Callable[[ClaimedJob], Any]) -> Callable[[ClaimedJob], Any]:
        add(
            Handler(
                channel=channel,
                consumer=consumer,
                function=function,
                ack_policy=ack_policy,
                transactional=transactional,
                timeout=timeout,
                on_giving_up=on_giving_up,
                backoff=backoff,
                defaults=defaults,
            )
        )
        return function

    return register


def autodiscover() -> None:
    """Import `pull_handlers` of every installed app."""
    autodiscover_modules(MODULE)


def registered() -> Iterator[Handler]:
    yield from _registered.values()


def serving(only: Collection[str] = ()) -> list[Handler]:
    """The handlers that these names choose, all without any; ConfigurationError if one has none."""
    known = list(registered())
    if not known:
        raise ConfigurationError(
            "There is no handler: register one with @pulljobs.handlers.handler in a "
            "pull_handlers.py of an installed app."
        )
    strange = sorted(set(only).difference(*(one.names for one in known)))
    if strange:
        served = ", ".join(sorted(f"{one.channel}/{one.consumer}" for one in known))
        raise ConfigurationError(
            f"No handler serves {', '.join(strange)}: there are handlers for {served}."
        )
    return [one for one in known if not only or one.names & set(only)]


def sync_consumers() -> list[Consumer]:
    """Make the rows of channels and consumers that handlers name and the database lacks; all rows.

    What people changed in the admin stays as it is.
    """
    return [subscribed(one) for one in registered()]


def add(new: Handler) -> None:
    check(new)
    known = _registered.get(new.place)
    if known is not None and known.function is not new.function:
        raise ConfigurationError(
            f"Consumer {new.consumer!r} of channel {new.channel!r} has two handlers: "
            f"{_path(known.function)} and {_path(new.function)}. Give one another consumer."
        )
    _registered[new.place] = new


def check(new: Handler) -> None:
    """ConfigurationError for what can't work, whatever others are registered."""
    if new.transactional and new.ack_policy is AckPolicy.ACK_FIRST:
        raise ConfigurationError(
            f"{_path(new.function)} is transactional and ack_first: settle before the handler "
            "runs, or together with its writes, not both."
        )
    if new.transactional and new.is_async:
        raise ConfigurationError(
            f"{_path(new.function)} is transactional and async, but a transaction belongs to one "
            "thread: make it a plain function, or leave out transactional."
        )
    _check_options(new)


def _policy(function: Callable[..., Any], given: AckPolicy | str) -> AckPolicy:
    try:
        return AckPolicy(given)
    except ValueError as error:
        raise ConfigurationError(
            f"{_path(function)}: {given!r} is no ack_policy: use one of {', '.join(AckPolicy)}."
        ) from error


def _check_options(new: Handler) -> None:
    """Here rather than where its row is made: that may be in a worker, later, or never."""
    fields = options.names()
    for name in sorted(new.defaults.keys() - fields):
        known = [*sorted(fields), *(handler.__kwdefaults__ or ())]
        [nearest] = get_close_matches(name, known, 1, 0)
        raise ConfigurationError(
            f"{_path(new.function)} has the option {name!r}, which is neither a keyword of "
            f"@handler nor a field of the consumer; did you mean {nearest!r}?"
        )
    if problems := [
        *_own_problems(new.timeout, new.on_giving_up),
        *options.problems(*new.place, new.defaults),
    ]:
        raise ConfigurationError(f"{_path(new.function)}: {' '.join(problems)}")


def _own_problems(timeout: object, on_giving_up: object) -> Iterator[str]:
    if timeout is not None and not (isinstance(timeout, timedelta) and timeout > timedelta(0)):
        yield f"timeout must be a timedelta above 0, not {timeout!r}."
    elif timeout is not None and timeout > LONGEST_DELAY:
        yield f"timeout must be at most 100 years, not {timeout!r}."
    if on_giving_up is not None and not callable(on_giving_up):
        yield f"on_giving_up must be a function, not {on_giving_up!r}."


def _path(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', function)}"


def subscribed(one: Handler) -> Consumer:
    """The row of its consumer; that and its channel's are made where they are missing."""
    using = settings().DATABASE
    channel, _made = Channel.objects.using(using).get_or_create(name=one.channel)
    consumer, _made = Consumer.objects.using(using).get_or_create(
        channel=channel, name=one.consumer, defaults=one.defaults
    )
    return consumer
