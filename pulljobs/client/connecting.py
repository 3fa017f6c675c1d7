"""Connections to brokers: their URLs, some of which are refused, identity and TLS."""

import ipaddress
import platform
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

from pulljobs import __version__
from pulljobs.client.argument_checks import check_name, check_secret, check_token
from pulljobs.errors import ConfigurationError
from pulljobs.signing import sign_for_gateway

try:
    import httpx as httpx  # for all of the client
except ModuleNotFoundError as missing:
    sentence = "The client needs httpx: python -m pip install 'pulljobs[client]'."
    raise ModuleNotFoundError(sentence, name="httpx") from missing

CHANNEL_TOKEN: Final = "X-Broker-Channel-Token"
CONSUMER_TOKEN: Final = "X-Broker-Consumer-Token"
PRODUCER: Final = "X-Broker-Producer-ID"
PRODUCER_TOKEN: Final = "X-Broker-Producer-Token"
SIGNATURE: Final = "X-Broker-Signature"
USER_AGENT: Final = f"pulljobs/{__version__} python/{platform.python_version()}"
GZIP_FROM: Final = 16 * 1024
CONNECT_SECONDS: Final = 5.0
LARGEST_PORT: Final = 65_535
LOGIN: Final = re.compile(r"//[^/?#]*@")
UNUSABLE_PROXY: Final = "The proxy in HTTP_PROXY, HTTPS_PROXY or ALL_PROXY cannot be used: "
C = TypeVar("C")


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Options of the connections of a client: TLS, identity and transport. All have defaults."""

    ca_file: str | None = None
    """File of certificates to trust in place of the system's."""
    certificate: tuple[str, str] | None = None
    """Files of the client's certificate and of its key."""
    verify: bool = True
    gzip_from: int | None = GZIP_FROM
    """Size in bytes from which bodies are sent compressed, or None if they never are."""
    worker_id: str = field(default_factory=lambda: uuid4().hex)
    """Name of this client in the broker's list of clients, by default a random one."""
    gateway_secret: str | None = field(default=None, repr=False)
    """Secret in base64 that signs all requests, for a broker with GATEWAY_SECRETS."""
    transport: Any = None
    """Transport of httpx in place of the network: BaseTransport, AsyncBaseTransport or both."""

    def __post_init__(self) -> None:
        if self.gateway_secret is not None:
            check_secret(self.gateway_secret)

    def signature(self, body: bytes) -> dict[str, str]:
        """Return the header that signs a request with this body, if there is a secret."""
        if self.gateway_secret is None:
            return {}
        seconds = str(int(time.time()))
        signed = sign_for_gateway(self.gateway_secret, seconds, body)
        return {SIGNATURE: f"t={seconds},v1={signed}"}

    def options(self, base_url: str, tokens: Mapping[str, str]) -> dict[str, Any]:
        """Return the arguments for an httpx client for the broker at this URL."""
        return {
            "base_url": base_of(base_url),
            # Ids may be any text: httpx sends bytes unchanged.
            "headers": {
                name: value.encode() for name, value in {**tokens, **self.identity()}.items()
            },
            "timeout": CONNECT_SECONDS,  # each request has its own
            "transport": self.transport,
            "verify": self._tls(base_url),
            # A proxy would get the tokens, and reach its own machine in place of this one.
            "trust_env": not is_loopback(base_url),
            "limits": httpx.Limits(max_connections=None, keepalive_expiry=60.0),
        }

    def identity(self) -> dict[str, str]:
        """Return the headers that name this client."""
        return {
            "User-Agent": USER_AGENT,
            "Accept-Encoding": "gzip",
            "X-Worker-Id": self.worker_id,
            "X-Worker-Host": socket.gethostname(),
        }

    def _tls(self, base_url: str) -> ssl.SSLContext | bool:
        """Return the TLS context for an https URL, or False for others, which need none."""
        if self.transport is not None or urlsplit(base_url).scheme != "https":
            return False
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate is not None:
                context.load_cert_chain(*self.certificate)
        except OSError as error:  # It names no file.
            named = [file for file in (self.ca_file, *(self.certificate or ())) if file]
            raise ConfigurationError(
                f"The certificates in {' or '.join(named)} cannot be used: {error}"
            ) from error
        if not self.verify:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context


@dataclass(frozen=True)
class Subscription:
    """Names of a channel and of its consumer whose jobs are pulled, with their tokens."""

    channel: str
    consumer: str
    channel_token: str = field(repr=False)
    consumer_token: str = field(repr=False)

    def __post_init__(self) -> None:
        check_name("channel", self.channel)
        check_name("consumer", self.consumer)
        check_token("channel", self.channel_token)
        check_token("consumer", self.consumer_token)

    @property
    def path(self) -> str:
        """Path of the consumer below the broker's base URL."""
        return f"channel/{quote(self.channel, safe='')}/consumer/{quote(self.consumer, safe='')}"

    @property
    def tokens(self) -> dict[str, str]:
        """Headers of requests that carry both tokens."""
        return {CHANNEL_TOKEN: self.channel_token, CONSUMER_TOKEN: self.consumer_token}


def check_subscription(given: object) -> None:
    """Raise ConfigurationError unless `given` is a Subscription. The error quotes no token."""
    if not isinstance(given, Subscription):
        raise ConfigurationError(f"Give a Subscription, not a {type(given).__name__}.")


def make_client(kind: Callable[..., C], options: Mapping[str, Any]) -> C:
    """Return a client of httpx. Raise ConfigurationError if it can't use a proxy."""
    try:
        return kind(**options)
    except httpx.InvalidURL:  # Its text may quote a part of a password.
        raise ConfigurationError(UNUSABLE_PROXY + "it is no URL.") from None
    except (ImportError, ValueError) as error:
        raise ConfigurationError(f"{UNUSABLE_PROXY}{error}") from error


def urls_of(given: str | Iterable[str]) -> list[str]:
    """Return one URL, or an iterable of URLs, as a list. Other arguments become text in a list."""
    is_list = isinstance(given, Iterable) and not isinstance(given, str)
    return list(given) if is_list else [str(given)]


def base_of(url: str) -> str:
    """Return the URL without slashes at its end. Raise ConfigurationError if it is not HTTP(S)."""
    try:
        parts = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError, TypeError):
        parts = httpx.URL()
    has_address = _is_host(parts.raw_host.decode()) and _is_port(parts.port)
    if parts.scheme not in ("http", "https") or not has_address:
        raise ConfigurationError(
            f"{without_login(str(url))!r} is no URL of a broker: http://localhost:8000 is one."
        )
    return url.rstrip("/")


def without_login(url: str) -> str:
    """Return a URL as errors and log lines show it: with `***` in place of name and password."""
    return LOGIN.sub("//***@", url, count=1)


def is_loopback(url: str) -> bool:
    """Return True if the host of a URL is this machine: localhost, or a loopback address."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _is_port(port: int | None) -> bool:
    return port is None or 0 < port <= LARGEST_PORT


def _is_host(name: str) -> bool:
    """Return True if DNS can look up the name: no part of it is empty or too long."""
    try:
        return bool(name.encode("idna"))
    except UnicodeError:
        return False
