"""Contents of push requests: the endpoint of a consumer, and the headers of a delivery."""

import base64
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, unquote, urlsplit

from django.utils.encoding import iri_to_uri, punycode

from pulljobs import ids, signing
from pulljobs.conf import Settings
from pulljobs.engine import tracing
from pulljobs.handlers import ClaimedJob
from pulljobs.models import Consumer

PORTS: Final = {"http": 80, "https": 443}
TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""Pattern of valid names of headers."""
CONTROLS: Final = re.compile(r"[\x00-\x1f\x7f]+")
OURS: Final = re.compile(r"x-broker-.*|webhook-.*|x-request-id|content-type|user-agent|accept.*")
OF_CONNECTIONS: Final = re.compile(
    r"host|content-length|transfer-encoding|content-encoding|connection|keep-alive|te|trailer"
    r"|upgrade|expect|proxy-.*|authorization|cookie|set-cookie|origin|via|forwarded|x-forwarded-.*"
    r"|(x-real|x-client|true-client)-ip|x-original-.*|x-rewrite-.*|x-http-method.*|x-method-override"
)
"""Pattern of headers of connections, proxies and callers, which a message must not set."""
TRACE: Final = frozenset({"traceparent", "tracestate"})
"""Headers of a message that are no secrets: endpoints may quote them in errors."""

Headers = list[tuple[bytes, bytes]]
Origin = tuple[str, str, int]
"""Scheme, host and port."""


class NoEndpoint(ValueError):
    """Error for a consumer whose callback URL or signing secret is unusable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Parts of a consumer's callback URL, and the secrets for deliveries to it."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query of the URL."""
    login: str | None
    """Name and password of the URL, with a colon between them."""
    channel: str
    consumer: str
    token: str | None
    signing_secrets: tuple[str, ...]

    @property
    def origin(self) -> Origin:
        return self.scheme, self.host, self.port

    @property
    def authorization(self) -> str | None:
        if self.login is None:
            return None
        return "Basic " + base64.b64encode(self.login.encode()).decode()

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def endpoint_of(consumer: Consumer) -> Endpoint:
    """Return the endpoint of a push consumer.

    Raise NoEndpoint if its callback URL is invalid, or its signing secret can't be decrypted.
    """
    try:
        url = urlsplit(consumer.callback_url)
        host, port = punycode((url.hostname or "").rstrip(".")), url.port
    except (ValueError, UnicodeError) as error:
        # The error is not quoted, because it may contain a login.
        raise NoEndpoint("The callback URL is invalid: its host or port cannot be read.") from error
    if url.scheme not in PORTS or not host:
        raise NoEndpoint("The callback URL must begin with http:// or https:// and name a host.")
    query = f"?{url.query}" if url.query else ""
    return Endpoint(
        scheme=url.scheme,
        host=host,
        port=PORTS[url.scheme] if port is None else port,
        target=iri_to_uri(f"{url.path or '/'}{query}"),
        login=_login(url),
        channel=consumer.channel.name,
        consumer=consumer.name,
        token=consumer.shown_token(),
        signing_secrets=_signing_secrets(consumer),
    )


def headers_of(job: ClaimedJob, endpoint: Endpoint, limits: Settings) -> Headers:
    sent = {
        "Host": endpoint.authority,
        "Content-Type": job.content_type,
        "Content-Length": str(len(job.payload)),
        "User-Agent": limits.PUSH_USER_AGENT,
        "Accept-Encoding": "identity",
        "X-Request-ID": f"{ids.encode(job.id)}-{job.deliveries}",
        "X-Broker-Message-ID": job.client_message_id or ids.encode(job.message_id),
        "X-Broker-Message-Priority": str(job.priority),
        "X-Broker-Channel-ID": endpoint.channel,
        "X-Broker-Consumer-ID": endpoint.consumer,
        **_metadata(job, limits),
    }
    if context := tracing.carried():
        # The context of this delivery replaces that of the publisher.
        sent = {name: value for name, value in sent.items() if name.lower() not in context}
        sent |= context
    if (authorization := endpoint.authorization) is not None:
        sent["Authorization"] = authorization
    if endpoint.token is not None:
        sent[limits.PUSH_TOKEN_HEADER] = endpoint.token
    if endpoint.signing_secrets:
        # The job's id is the same at every attempt, so that a receiver recognises repeats.
        sent |= signing.sign(endpoint.signing_secrets, ids.encode(job.id), job.payload)
    return [(name.encode(), _line(value)) for name, value in sent.items()]


def secrets_of(job: ClaimedJob, endpoint: Endpoint) -> tuple[str, ...]:
    """Return the secret parts of a push request, which errors and logs must not repeat.

    The payload is secret as well, and not among them.
    """
    login = (endpoint.login or "").split(":", 1)
    encoded = (endpoint.authorization or "").removeprefix("Basic ")
    _path, _mark, query = endpoint.target.partition("?")
    own = (endpoint.token or "", *endpoint.signing_secrets, *login, encoded, query)
    values = (value for name, value in job.headers.items() if name.lower() not in TRACE)
    return tuple(filter(None, (*own, *values)))


def _metadata(job: ClaimedJob, limits: Settings) -> dict[str, str]:
    """Return the message's headers to send, and the header that lists their names.

    Headers that would replace those of the protocol or of the connection are omitted.
    """
    named = dict(_sendable(job.headers, limits.PUSH_TOKEN_HEADER))
    return named | {"X-Broker-Metadata-Headers": ",".join(sorted(named))} if named else {}


def _sendable(headers: dict[str, str], token_header: str) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        plain = _plain(name)
        taken = OURS.fullmatch(plain) or OF_CONNECTIONS.fullmatch(plain)
        if TOKEN.fullmatch(name) and not taken and plain != _plain(token_header):
            yield name, value


def _plain(name: str) -> str:
    """Return a header's name in lower case, with dashes for underscores, which WSGI equates."""
    return name.lower().replace("_", "-")


def _line(value: str) -> bytes:
    """Return the bytes of a header's value as one line, so that it can't add headers."""
    return CONTROLS.sub(" ", value).strip().encode("utf-8", "replace")


def _login(url: SplitResult) -> str | None:
    if url.username is None:
        return None
    return f"{unquote(url.username)}:{unquote(url.password or '')}"


def _signing_secrets(consumer: Consumer) -> tuple[str, ...]:
    secrets = tuple(consumer.signing_secrets())
    if consumer.signing_secrets_sealed and not secrets:
        # Nothing is sent unsigned: a receiver would learn to accept unsigned deliveries of others.
        raise NoEndpoint(
            "The signing secret cannot be decrypted: bring back the key that encrypted it, in "
            "PULLJOBS['TOKEN_KEYS'] or SECRET_KEY_FALLBACKS, and the package cryptography, or "
            "set a new one."
        )
    return secrets
