"""The `PULLJOBS` dict of the Django settings, as one frozen value.

Read when first needed and again after `setting_changed`, so tests can override it. Times are
timedeltas, sizes are bytes. A flag of `runpullworker` bears the name of its setting.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from django.conf import settings as django_settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from pulljobs.errors import ConfigurationError

SETTING = "PULLJOBS"
OF_DRF = tuple(
    f"rest_framework.authentication.{kind}Authentication" for kind in ("Session", "Basic", "Token")
)
CHECKED_WITHIN = {"PUSH_PORTS", "TOKEN_KEYS", "GATEWAY_SECRETS"}
"""Lists for whose elements there are checks, which have more to say and show no secret."""
SCOPES = frozenset({
    "ack", "app-status", "broadcast", "broadcast-batch", "channel", "channels", "consumer",
    "consumers", "dlq", "dlq-status", "info", "job", "job-status", "lookup", "message", "messages",
    "messages-status", "metrics", "openapi", "pause", "producer", "producers", "pull",
    "queued-jobs", "renew", "requeue-dead-job", "scheduled-message", "scheduled-messages",
})  # fmt: skip
"""The routes of the API, by whose names calls are throttled."""


class Access(StrEnum):
    """Who may manage and read over HTTP."""

    USERS = "users"
    READ_ONLY = "read-only"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    DATABASE: str = "default"
    """The alias of the database that holds the jobs."""

    MAX_PAYLOAD_BYTES: int = 1024 * 1024
    """Of one message."""
    MAX_HEADERS: int = 64
    """Of one message."""
    MAX_HEADER_BYTES: int = 16 * 1024
    """Names and values of a message's headers together."""
    MAX_RESULT_BYTES: int = 16 * 1024
    """A handler's result above this is a failure of the handler."""
    MAX_ERROR_CHARS: int = 8_000
    """Error texts are cut in the middle to this length."""

    DEDUPE_WINDOW: timedelta = timedelta(minutes=2)
    """For channels that set none of their own."""
    PROTOCOL_LEASE: timedelta = timedelta(seconds=32.25)
    """Of jobs taken by a job POST, where the consumer sets none: stop timeout + rational delay."""
    MIN_SCHEDULE_DELAY: timedelta = timedelta(minutes=2)
    """Messages are scheduled so far ahead, or farther."""
    MAX_LEASE: timedelta = timedelta(seconds=900)
    """How long a claim can be kept by renewing, unless it was granted longer."""

    RETENTION: timedelta | None = None
    """Age at which partitions of messages and archive may be dropped, where there is a lake once it
    was verified to have them; None keeps everything."""
    PARTITIONS_AHEAD: int = 7
    """Days for which partitions are made in advance."""

    ONLY: Sequence[str] = ()
    """Channels, or channel/consumer, that workers serve; none: all with a handler or pushed to."""
    PROCESSES: int = 1
    """Children of a worker, each with its own threads and limits."""
    CONCURRENCY: int = 8
    """Threads that run handlers."""
    ASYNC_CONCURRENCY: int = 100
    """Async handlers that run at once, on the event loop."""
    FETCH_BATCH: int = 200
    """Jobs of one claim at the most."""
    MAX_HELD: int = 1000
    """Jobs that are claimed and not yet settled, of one process, at the most."""
    MIN_FETCH_INTERVAL: timedelta = timedelta(0)
    """Between a full fetch and the next."""
    MAX_FETCH_INTERVAL: timedelta = timedelta(seconds=1)
    """Between polls that found nothing; a wake-up ends the wait."""
    FLUSH_INTERVAL: timedelta = timedelta(milliseconds=50)
    """Outcomes wait so long for others, to be written together; a second at the most."""
    FLUSH_SIZE: int = 500
    """Outcomes that are written without waiting for the interval."""
    REAP_INTERVAL: timedelta = timedelta(seconds=5)
    """Between looks for leases that are over."""
    MAINTENANCE_INTERVAL: timedelta = timedelta(minutes=10)
    """Between looks at partitions."""
    HEARTBEAT_INTERVAL: timedelta = timedelta(seconds=10)
    """Between reports of a process to its row in nodes."""
    GRACEFUL_TIMEOUT: timedelta = timedelta(seconds=15)
    """What running handlers get after SIGTERM."""
    HANDLER_TIMEOUT: timedelta = timedelta(seconds=900)
    """How long a handler may run that sets no timeout of its own."""
    BACKOFF_AFTER: int = 5
    """Failures in a row after which a consumer's jobs are left alone for a while."""
    BACKOFF_INITIAL: timedelta = timedelta(seconds=1)
    """Doubled by every failure of the one job that is tried then; 0 disables the back-off."""
    BACKOFF_MAX: timedelta = timedelta(seconds=120)
    """The longest such while; 0 disables the back-off."""
    BURST: bool = False
    """Workers end once nothing is ready and nothing is held."""
    ONCE: bool = False
    """Workers end after one claim for each consumer."""
    MAX_JOBS: int | None = None
    """Jobs after which a child is replaced by a new one."""
    MAX_MEMORY: int | None = None
    """Bytes of resident memory at which a child is replaced by a new one; the flag takes 512M."""
    HEALTH_PORT: int | None = None
    """Where a worker answers /livez, /readyz and, with METRICS, /metrics; 0: a free port, named in
    the log."""
    HEALTH_HOST: str = "127.0.0.1"
    """The address that the health port is bound to."""
    LIVENESS_TIMEOUT: timedelta = timedelta(seconds=60)
    """A loop that takes so long over one pass is hung, and its child is replaced."""

    PUSH: bool = True
    """Workers deliver to push consumers."""
    PUSH_CONCURRENCY: int = 500
    """Deliveries at once of one process, shared out to those who get any; each may have one."""
    PUSH_PER_CONSUMER: int = 20
    """Deliveries at once to one consumer."""
    PUSH_PER_HOST: int = 50
    """Deliveries at once to one host and port, beyond the first of each consumer there."""
    PUSH_CONNECT_TIMEOUT: timedelta = timedelta(seconds=5)
    """Until a delivery is connected."""
    PUSH_TIMEOUT: timedelta = timedelta(seconds=30)
    """From the start of a delivery to the status of its answer."""
    PUSH_MAX_RETRY_AFTER: timedelta = timedelta(hours=1)
    """A longer Retry-After is taken for this."""
    PUSH_MAX_ANSWER_BYTES: int = 64 * 1024
    """Of the body of an answer no more than this is read."""
    PUSH_ALLOWED_NETWORKS: Sequence[str] = ()
    """Such as `10.1.0.0/16`: addresses that are delivered to though they are not public."""
    PUSH_PORTS: Sequence[int] = ()
    """Ports that are delivered to; none: any."""
    PUSH_TOKEN_HEADER: str = "X-Broker-Consumer-Token"
    """The header of a delivery that bears the consumer's token."""
    PUSH_USER_AGENT: str = "pulljobs"
    """Who a delivery says it is from."""

    MAX_BATCH: int = 100
    """Jobs of one pull, outcomes of one ack, messages of one batch over HTTP, at the most."""
    MAX_BATCH_BYTES: int = 8 * 1024 * 1024
    """The body of a batch."""
    MAX_EXPIRES: timedelta = timedelta(seconds=60)
    """How long a pull over HTTP may linger."""
    MAX_LINGERING_THREADS: int = 8
    """Pulls that may linger at once in a process where each holds a thread: under WSGI."""
    ADDRESS: str = ""
    """The base URL at which others reach the API of this process; else as its first caller did."""

    TOKEN_KEYS: Sequence[str] = field(default=(), repr=False)
    """Fernet keys of the tokens' sealed copies: the first seals, all open; else from SECRET_KEY."""
    API_AUTHENTICATION: Sequence[str] = OF_DRF
    """By what Django users are known that manage and read over HTTP: classes of DRF."""
    API_ACCESS: str = Access.USERS
    """Who may manage and read over HTTP: `users` with the permission, `read-only` also lets anybody
    read, `open` lets anybody do all."""
    TOKENS_REQUIRED: bool = True
    """Without, producers and consumers are who they say they are."""
    THROTTLES: Mapping[str, str] = field(default_factory=dict)
    """Requests of one token by scope, such as `{"pull": "100/s"}`; other scopes have no limit."""
    GATEWAY_SECRETS: Sequence[str] = field(default=(), repr=False)
    """In base64: requests must bear an X-Broker-Signature by one of them; none: no gateway."""
    GATEWAY_TOLERANCE: timedelta = timedelta(minutes=5)
    """How far a signature's time may be from ours, either way."""
    GATEWAY_EXEMPT: Sequence[str] = ("/_status", "/metrics", "/debug/pprof/", "/livez", "/readyz")
    """Paths that begin so need no signature."""

    METRICS: bool = False
    """Count what happens for Prometheus; needs `pulljobs[metrics]`."""
    TRACING: bool = False
    """Spans for OpenTelemetry, and their context in the headers of messages; needs
    `pulljobs[metrics]`."""

    LAKE: str = ""
    """The directory, or the URL of one, that history is exported to; empty: there is no lake."""
    SPARK: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of Spark sessions, such as `{"spark.master": "local[4]"}`."""

    @property
    def largest_body(self) -> int:
        """No route over HTTP takes more."""
        return max(self.MAX_PAYLOAD_BYTES, self.MAX_BATCH_BYTES)


def load(given: Mapping[str, Any]) -> Settings:
    """Raise ConfigurationError for an unknown key or a value of the wrong type."""
    if not isinstance(given, dict):
        raise ConfigurationError(f"{SETTING} is not a dict.")
    problems = unknown(given) or mistyped(given)
    if problems:
        raise ConfigurationError(" ".join(problems))
    return Settings(**given)


def unknown(given: Mapping[str, Any]) -> list[str]:
    """One sentence for each key that is no setting, naming the nearest that is."""
    known = [field.name for field in fields(Settings)]
    return [
        f"{SETTING}[{key!r}] is no setting; did you mean {nearest[0]!r}?"
        if (nearest := get_close_matches(str(key).upper(), known, 1, 0.4))
        else f"{SETTING}[{key!r}] is no setting."
        for key in given
        if key not in known
    ]


def mistyped(given: Mapping[str, Any]) -> list[str]:
    """One sentence for each value of the wrong type."""
    types: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
    return [
        f"{SETTING}[{key!r}] must be {_words(types[key])}, not {_shown(key, value)}."
        for key, value in given.items()
        if not _fits(value, types[key], within=key not in CHECKED_WITHIN)
    ]


def _fits(value: object, expected: Any, *, within: bool = False) -> bool:
    """Whether it is of it, `within`: also what a list has; a bool is no number, text no list."""
    if isinstance(expected, UnionType):
        return any(_fits(value, one) for one in get_args(expected))
    kind = get_origin(expected) or expected
    if kind is Sequence:
        if not isinstance(value, list | tuple):
            return False
        [element] = get_args(expected)
        return not within or all(_fits(one, element) for one in value)
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _shown(key: str, value: object) -> str:
    """Not what may be a secret."""
    secret = key.endswith(("_KEYS", "_SECRETS"))
    return f"of type {type(value).__name__}" if secret else repr(value)


def _words(expected: Any) -> str:
    kinds = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    example = ", such as timedelta(days=30)" if timedelta in kinds else ""
    return " or ".join(map(_word, kinds)) + example


def _word(kind: Any) -> str:
    if kind is NoneType:
        return "None"
    return kind.__name__ if isinstance(kind, type) else str(kind)


@cache
def settings() -> Settings:
    return load(getattr(django_settings, SETTING, {}))


@receiver(setting_changed)
def _reload(setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        settings.cache_clear()
