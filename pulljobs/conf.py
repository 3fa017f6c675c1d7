"""The `PULLJOBS` dict of the Django settings, as one frozen value.

It is read when first needed and again after `setting_changed`, so that tests can override it. Times
are timedeltas, sizes are bytes. A flag of `runpullworker` has the name of its setting.
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
WORKER_CHECKS = "pulljobs_worker"
"""Tag of the system checks that a worker runs at its start."""
OF_DRF = tuple(
    f"rest_framework.authentication.{kind}Authentication" for kind in ("Session", "Basic", "Token")
)
"""Authentication classes of Django REST framework, the default of API_AUTHENTICATION."""
LEAST_LEASE = timedelta(seconds=1)
"""Shortest lease duration of a consumer.

A worker renews a lease after a third of it, and looks for such leases every fifth of a second. Less
than a second leaves no time for a renewal that is late or has to be repeated.
"""
CHECKED_WITHIN = {"PUSH_PORTS", "TOKEN_KEYS", "GATEWAY_SECRETS"}
"""Settings whose elements `load` does not check: a system check does, and shows no secret."""
SCOPES = frozenset({
    "ack", "app-status", "broadcast", "broadcast-batch", "channel", "channels", "consumer",
    "consumers", "dlq", "dlq-status", "info", "job", "job-status", "limit-group",
    "limit-groups", "lookup", "message", "messages", "messages-status", "metrics", "openapi",
    "pause", "producer", "producers", "pull", "queued-jobs", "renew", "requeue-dead-job",
    "scheduled-message", "scheduled-messages", "weights",
})  # fmt: skip
"""Names of the core's API routes. THROTTLES has these as keys, and those of `hooks.api_scopes`."""


class Access(StrEnum):
    """Value of API_ACCESS: how much callers without permissions may read and manage over HTTP."""

    USERS = "users"
    READ_ONLY = "read-only"
    OPEN = "open"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All keys of the `PULLJOBS` dict with their defaults."""

    DATABASE: str = "default"
    """Alias of the database that holds the jobs."""

    MAX_PAYLOAD_BYTES: int = 1024 * 1024
    """Largest payload of a message."""
    MAX_HEADERS: int = 64
    """Largest number of headers of a message."""
    MAX_HEADER_BYTES: int = 16 * 1024
    """Largest size of a message's headers, names and values together."""
    MAX_RESULT_BYTES: int = 16 * 1024
    """Largest result of a handler. A larger result is a failure of the handler."""
    MAX_ERROR_CHARS: int = 8_000
    """Longest error text. Longer texts are cut in the middle."""

    DEDUPE_WINDOW: timedelta = timedelta(minutes=2)
    """Time for which a client message id stays taken, unless the channel sets its own."""
    PROTOCOL_LEASE: timedelta = timedelta(seconds=32.25)
    """Lease duration of a job that a client claims by its id, unless the consumer sets its own."""
    PROTOCOL_MAX_RETRIES: int | None = None
    """Retries of consumers that a PUT creates. None: as for other new consumers."""
    PROTOCOL_RETRY_STRATEGY: str = ""
    """Retry strategy of consumers that a PUT creates. Empty: as for other new consumers."""
    MIN_SCHEDULE_DELAY: timedelta = timedelta(minutes=2)
    """Shortest time that a message must be scheduled ahead."""
    MAX_LEASE: timedelta = timedelta(seconds=900)
    """Longest time that renewals keep a claim, unless its lease or handler's limit is longer."""

    RETENTION: timedelta | None = None
    """Age at which partitions of messages and archive may be dropped. None keeps everything.

    With a lake, only partitions of which it has a verified copy are dropped.
    """
    PARTITIONS_AHEAD: int = 7
    """Days for which partitions are created in advance."""

    ONLY: Sequence[str] = ()
    """Channels, or channel/consumer, that workers serve.

    Empty: all consumers with a handler, and all push consumers.
    """
    EXCLUDE: Sequence[str] = ()
    """Channels, or channel/consumer, that workers do not serve, whatever `ONLY` says."""
    WORKER_ID: str = ""
    """Name of a worker in the list of nodes and in logs, by default that of its host."""
    PROCESSES: int = 1
    """Child processes of a worker, each with its own threads and limits."""
    CONCURRENCY: int = 16
    """Threads of a process that run handlers. Few jobs use few of them, and few connections."""
    ASYNC_CONCURRENCY: int = 100
    """Async handlers of a process that run at once, on its event loop."""
    FETCH_BATCH: int = 1000
    """Largest number of jobs of one claim."""
    MAX_HELD: int = 4000
    """Largest number of jobs that a process has claimed and not yet settled."""
    MAX_HELD_BYTES: int = 64 * 1024 * 1024
    """Bytes of payloads of claimed, unsettled jobs beyond which a process claims no more.

    The flag takes 64M. A single job is claimed whatever its size. Sizes are estimated before the
    claim from those of the consumer's last claim, so the bound may be passed by one claim.
    """
    MIN_FETCH_INTERVAL: timedelta = timedelta(0)
    """Time from a claim that left more jobs to the next claim for the same consumer."""
    MAX_FETCH_INTERVAL: timedelta = timedelta(seconds=1)
    """Time between claims of a consumer without jobs. A notification ends the wait."""
    FLUSH_INTERVAL: timedelta = timedelta(milliseconds=50)
    """Time that outcomes wait to be written together, at most a second."""
    FLUSH_SIZE: int = 1000
    """Number of outcomes that are written without waiting for FLUSH_INTERVAL."""
    REAP_INTERVAL: timedelta = timedelta(seconds=5)
    """Time between passes of the reaper over expired leases."""
    MAINTENANCE_INTERVAL: timedelta = timedelta(minutes=10)
    """Time between passes of the maintenance of partitions."""
    HEARTBEAT_INTERVAL: timedelta = timedelta(seconds=10)
    """Time between heartbeats of a process to its node row."""
    GRACEFUL_TIMEOUT: timedelta = timedelta(seconds=15)
    """Time that running handlers have to end after SIGTERM."""
    HANDLER_TIMEOUT: timedelta = timedelta(seconds=900)
    """Time limit of handlers that set none of their own."""
    BACKOFF_AFTER: int = 5
    """Different jobs that fail in a row before a consumer, or a Django task, is held back."""
    BACKOFF_INITIAL: timedelta = timedelta(seconds=1)
    """Half of the first back-off, after which one job is tried. Its failure doubles the back-off.

    0 disables the back-off.
    """
    BACKOFF_MAX: timedelta = timedelta(seconds=120)
    """Longest back-off. 0 disables the back-off."""
    BURST: bool = False
    """If True, workers end once no job is ready and none is held."""
    ONCE: bool = False
    """If True, workers end after one claim for each consumer."""
    MAX_JOBS: int | None = None
    """Number of jobs after which a child process is replaced."""
    MAX_MEMORY: int | None = None
    """Bytes of resident memory at which a child process is replaced. The flag takes 512M."""
    HEALTH_PORT: int | None = None
    """Port at which a worker answers /livez, /readyz and, with METRICS, /metrics.

    With 0 it takes a free port, which it logs.
    """
    HEALTH_HOST: str = "127.0.0.1"
    """Address to which the health port is bound."""
    LIVENESS_TIMEOUT: timedelta = timedelta(seconds=60)
    """Time after which a loop that does not end its pass is hung, and its process is replaced."""

    PUSH: bool = True
    """If True, workers deliver to push consumers."""
    PUSH_CONCURRENCY: int = 500
    """Deliveries of a process at once, shared fairly. Each push consumer may always have one."""
    PUSH_PER_CONSUMER: int = 20
    """Deliveries at once to one consumer."""
    PUSH_PER_HOST: int = 50
    """Deliveries at once to one host and port, beyond the first of each consumer there."""
    PUSH_CONNECT_TIMEOUT: timedelta = timedelta(seconds=5)
    """Time limit for connecting to an endpoint."""
    PUSH_TIMEOUT: timedelta = timedelta(seconds=30)
    """Time limit from the start of a delivery to the status of its answer."""
    PUSH_MAX_RETRY_AFTER: timedelta = timedelta(hours=1)
    """Longest Retry-After that is honoured. A longer wait is cut to this."""
    PUSH_MAX_ANSWER_BYTES: int = 64 * 1024
    """Number of bytes of an answer's body that are read, from its beginning."""
    PUSH_ALLOWED_NETWORKS: Sequence[str] = ()
    """Networks such as `10.1.0.0/16` that are delivered to although they are not public."""
    PUSH_PORTS: Sequence[int] = ()
    """Ports that are delivered to, or empty for all."""
    PUSH_TOKEN_HEADER: str = "X-Broker-Consumer-Token"
    """Header of a delivery that carries the consumer's token."""
    PUSH_USER_AGENT: str = "pulljobs"
    """User-Agent header of deliveries."""

    MAX_BATCH: int = 100
    """Largest number of jobs of a pull, outcomes of an ack and messages of a batch over HTTP."""
    MAX_BATCH_BYTES: int = 8 * 1024 * 1024
    """Largest body of a request that publishes a batch of messages."""
    MAX_EXPIRES: timedelta = timedelta(seconds=60)
    """Longest wait of a long poll over HTTP."""
    MAX_LONG_POLL_THREADS: int = 8
    """Long polls at once in a process under WSGI, where each of them holds a thread."""
    REAP_WHILE_SERVING: bool = True
    """If True, processes that hand out leases over HTTP also reap, as workers do."""
    ADDRESS: str = ""
    """Base URL at which clients reach the API of this process.

    Empty: the URL that its first caller used.
    """

    TOKEN_KEYS: Sequence[str] = field(default=(), repr=False)
    """Fernet keys for the encrypted copies of tokens: the first encrypts, all decrypt.

    Keys derived from SECRET_KEY follow them.
    """
    API_AUTHENTICATION: Sequence[str] = OF_DRF
    """Authentication classes of DRF for Django users that manage and read over HTTP."""
    API_ACCESS: str = Access.USERS
    """Users that may manage and read over HTTP.

    `users` are those with the permission, `read-only` also lets everyone read, `open` lets everyone
    do everything.
    """
    TOKENS_REQUIRED: bool = True
    """If False, tokens are not checked: anyone can publish and pull."""
    THROTTLES: Mapping[str, str] = field(default_factory=dict)
    """Rates per token and scope, such as `{"pull": "100/s"}`. Other scopes have no limit."""
    GATEWAY_SECRETS: Sequence[str] = field(default=(), repr=False)
    """Secrets in base64: requests must carry an X-Broker-Signature made with one of them.

    Empty: no signature is needed.
    """
    GATEWAY_TOLERANCE: timedelta = timedelta(minutes=5)
    """Largest difference between a signature's time and the clock of this process."""
    GATEWAY_EXEMPT: Sequence[str] = ("/_status", "/metrics", "/debug/pprof/", "/livez", "/readyz")
    """Beginnings of paths that need no signature."""

    METRICS: bool = False
    """If True, events are counted for Prometheus. This needs `pulljobs[metrics]`."""
    TRACING: bool = False
    """If True, spans are recorded for OpenTelemetry. This needs `pulljobs[metrics]`.

    Their context travels in the headers of messages.
    """

    LAKE: str = ""
    """Directory or URL that history is exported to, or empty without a lake."""
    LAKE_REPLICA: str = ""
    """Alias of a standby server of DATABASE, from which `lake export` and `lake verify` read rows.

    Empty: they read from DATABASE.
    """
    LAKE_CONNECTIONS: int | None = None
    """Most connections on which `lake export` and `lake verify` read rows at once.

    None: one for each core.
    """
    SPARK: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Properties of Spark sessions, such as `{"spark.master": "local[4]"}`."""

    @property
    def largest_body(self) -> int:
        """Largest body of a request that any route of the HTTP API accepts, in bytes."""
        return max(self.MAX_PAYLOAD_BYTES, self.MAX_BATCH_BYTES, self.largest_ack)

    @property
    def largest_ack(self) -> int:
        """Largest body of an ack over HTTP, in bytes: it has room for the largest result.

        JSON may have six bytes for a character of which `MAX_RESULT_BYTES` counts two.
        """
        return 2 * 1024 * 1024 + 3 * self.MAX_RESULT_BYTES


def load(given: Mapping[str, Any]) -> Settings:
    """Return a `PULLJOBS` dict as settings. Wrong keys or types raise ConfigurationError."""
    if not isinstance(given, dict):
        raise ConfigurationError(f"{SETTING} is not a dict: write it as one.")
    problems = unknown(given) or mistyped(given)
    if problems:
        raise ConfigurationError(" ".join(problems))
    return Settings(**given)


def unknown(given: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each key that is no setting, with a similar valid key if any."""
    known = [field.name for field in fields(Settings)]
    return [
        f"{SETTING}[{key!r}] is no setting; did you mean {nearest[0]!r}?"
        if (nearest := get_close_matches(str(key).upper(), known, 1, 0.4))
        else f"{SETTING}[{key!r}] is no setting."
        for key in given
        if key not in known
    ]


def mistyped(given: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each value of the wrong type."""
    types: dict[str, Any] = {field.name: field.type for field in fields(Settings)}
    return [
        f"{SETTING}[{key!r}] must be {_type_names(types[key])}, not {_masked(key, value)}."
        for key, value in given.items()
        if not _fits(value, types[key], within=key not in CHECKED_WITHIN)
    ]


def _fits(value: object, expected: Any, *, within: bool = False) -> bool:
    """Return True if the value has the type. A bool is no number, and text is no list.

    With `within` the elements of a list must have their type, too.
    """
    if isinstance(expected, UnionType):
        return any(_fits(value, kind) for kind in get_args(expected))
    kind = get_origin(expected) or expected
    if kind is Sequence:
        if not isinstance(value, list | tuple):
            return False
        [element] = get_args(expected)
        return not within or all(_fits(item, element) for item in value)
    return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)


def _masked(key: str, value: object) -> str:
    """Return the value as error messages show it: only its type if it may be a secret."""
    secrets = {field.name for field in fields(Settings) if not field.repr}
    return f"of type {type(value).__name__}" if key in secrets else repr(value)


def _type_names(expected: Any) -> str:
    kinds = get_args(expected) if isinstance(expected, UnionType) else (expected,)
    example = ", such as timedelta(days=30)" if timedelta in kinds else ""
    return " or ".join(map(_type_name, kinds)) + example


def _type_name(kind: Any) -> str:
    if kind is NoneType:
        return "None"
    if get_origin(kind) is Sequence:
        return f"a list of {_type_name(get_args(kind)[0])}"
    return "a dict" if get_origin(kind) is Mapping else str(kind.__name__)


@cache
def settings() -> Settings:
    """Return the current settings, or raise ConfigurationError if they are wrong."""
    return load(getattr(django_settings, SETTING, {}))


@receiver(setting_changed)
def _reload(setting: str, **kwargs: Any) -> None:
    if setting == SETTING:
        settings.cache_clear()
