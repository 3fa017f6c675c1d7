"""Messages before they are stored: validation, parameters of publish statements, and results.

Every publisher validates with `checked`, or a payload without options with `bare`: the functions of
`pulljobs.publishing`, the API, and the tasks of Spark, which run without Django.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from pulljobs.engine.encodings import Blobs, array, byte_array, sparse_array, tuple_maker
from pulljobs.errors import LONGEST_DELAY, InvalidMessage, PayloadTooLarge

HIGHEST_COST: Final = 1_000_000
MAX_KEY_CHARS: Final = 255
PRIORITIES: Final = range(-32_768, 32_768)
BYTES: Final = "application/octet-stream"
TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

Payload = Any
"""Payload: bytes, str, or a value for `json.dumps` with Django's encoder, which knows dates."""


class Limits(Protocol):
    """Settings that limit a message. `pulljobs.conf.Settings` has them."""

    @property
    def MAX_PAYLOAD_BYTES(self) -> int: ...

    @property
    def MAX_HEADERS(self) -> int: ...

    @property
    def MAX_HEADER_BYTES(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """One message of `publish_many`. The fields are the arguments of `publish`."""

    payload: Payload
    key: str | None = None
    priority: int = 0
    message_id: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str | None = None
    delay: timedelta | None = None
    available_at: datetime | None = None
    cost: int = 1


class NewMessage(NamedTuple):
    """Validated message to publish."""

    payload: bytes
    content_type: str
    headers: dict[str, str]
    key: str | None = None
    priority: int = 0
    client_message_id: str | None = None
    delay: timedelta | None = None
    available_at: datetime | None = None
    cost: int | None = None
    """Tokens of a rate that each of its jobs takes. None: one."""

    @property
    def is_plain(self) -> bool:
        """True if only content, headers and priority differ from the defaults."""
        return not (
            self.key or self.client_message_id or self.delay or self.available_at or self.cost
        )

    def plain_parameters(self) -> dict[str, Any]:
        """Return the message's parameters of publish_plain.sql."""
        return {
            "payload": self.payload,
            "content_type": self.content_type,
            "headers": json.dumps(self.headers) if self.headers else "{}",
            "priority": self.priority,
        }

    def parameters(self) -> dict[str, Any]:
        """Return the message's parameters of publish_one.sql."""
        return {**self._asdict(), "headers": json.dumps(self.headers), "replacing": None}


_message: Final = tuple_maker(NewMessage)


class FullKey(NamedTuple):
    """Consumer that takes no more jobs of a message's key."""

    consumer: str
    message_id: int
    """Id of the message of the newest job of the key."""


class Published(NamedTuple):
    """Result of a publish.

    `message_id` is None if nothing was written, because the client message id is taken or the key
    is full.
    """

    message_id: int | None
    job_ids: list[int]
    consumer_ids: list[int]
    replaced: tuple[int, ...] = ()
    """Ids of jobs that were queued with another message and have this message now."""
    full: FullKey | None = None
    awaited: bool = True
    """False if no process waited for its jobs when they were written, so that none is notified."""


def parameters(messages: Iterable[NewMessage]) -> dict[str, str | Blobs]:
    """Return the parameters of publish.sql for one message or more: an array for each column.

    An array that would have only NULLs is empty.
    """
    payloads, content_types, headers, keys, priorities, client_ids, delays, ats, costs = zip(
        *messages, strict=True
    )
    return {
        "payloads": byte_array(payloads),
        "content_types": array(content_types),
        "headers": sparse_array([json.dumps(each) if each else None for each in headers]),
        "keys": sparse_array(keys),
        "priorities": array(priorities),
        "client_message_ids": sparse_array(client_ids),
        "delays": sparse_array(delays),
        "available_ats": sparse_array(ats),
        "costs": sparse_array(costs),
    }


def checked(draft: Draft, payload: bytes, content_type: str, limits: Limits) -> NewMessage:
    """Return a draft as a message to store, or raise InvalidMessage or PayloadTooLarge.

    `payload` is the draft's payload as bytes, and `content_type` its content type unless the draft
    names one.
    """
    _check_size(payload, limits)
    _check_priority(draft.priority)
    _check_times(draft)
    _check_cost(draft.cost)
    return NewMessage(
        payload,
        _content_type(draft.content_type) if draft.content_type else content_type,
        _headers(draft.headers, limits),
        None if draft.key is None else _text("key", draft.key),
        int(draft.priority),
        None if draft.message_id is None else _text("message_id", draft.message_id),
        draft.delay,
        draft.available_at,
        None if draft.cost == 1 else int(draft.cost),
    )


def bare(payload: bytes, content_type: str, limits: Limits) -> NewMessage:
    """Return a message to store with this payload and defaults, or raise PayloadTooLarge."""
    _check_size(payload, limits)
    return _message((payload, content_type, {}, None, 0, None, None, None, None))


def check_iterable(drafts: object) -> None:
    """Raise InvalidMessage unless this is an iterable of payloads, and not itself a payload."""
    if isinstance(drafts, str | bytes | bytearray | memoryview | Mapping):
        raise InvalidMessage(
            f"publish_many takes an iterable of payloads, and a {type(drafts).__name__} is one "
            "payload: put it in a list, or call publish."
        )
    if not isinstance(drafts, Iterable):
        raise InvalidMessage(f"publish_many takes an iterable of payloads, not {drafts!r}.")


def check_amount(name: str, value: object) -> float:
    """Return a finite number of at least 0, of any numeric type, as a float.

    Raise ValueError, with the name of the argument, for any other value.
    """
    try:
        amount = math.nan if isinstance(value, str | bytes) else float(value)  # type: ignore[arg-type]  # the check
    except (TypeError, ValueError, OverflowError):
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise ValueError(f"{name} must be a number from 0 on, not {value!r}.")
    return amount


def encodable(text: str) -> bool:
    """Return True if PostgreSQL can store the text: no NUL, no half surrogate pair."""
    try:
        return b"\x00" not in text.encode()
    except UnicodeEncodeError:
        return False


def _check_size(payload: bytes, limits: Limits) -> None:
    if len(payload) > limits.MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"The payload has {len(payload)} bytes, the limit is {limits.MAX_PAYLOAD_BYTES}: "
            "publish a reference to it, or raise PULLJOBS['MAX_PAYLOAD_BYTES']."
        )


def _content_type(text: str) -> str:
    """Return the content type, or raise InvalidMessage if it can't be sent as a header."""
    if not _text("content_type", text).isprintable():
        raise InvalidMessage(f"content_type must be one line of printable text, not {text!r}.")
    return text


def _text(name: str, value: str) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS:
        raise InvalidMessage(f"{name} must be text of 1 to {MAX_KEY_CHARS} characters.")
    if not encodable(value):
        raise InvalidMessage(f"{name} has a NUL character or half a surrogate pair: leave it out.")
    return value


def _headers(headers: Mapping[str, str], limits: Limits) -> dict[str, str]:
    if headers == {}:
        return {}
    if not isinstance(headers, Mapping):
        raise InvalidMessage(f"headers must be a mapping, not {type(headers).__name__}.")
    plain = dict(headers)
    if any(
        not (isinstance(item, str) and encodable(item)) for item in chain(plain, plain.values())
    ):
        raise InvalidMessage("Names and values of headers must be text without NUL characters.")
    size = sum(len(item.encode()) for item in chain(*plain.items()))
    if len(plain) > limits.MAX_HEADERS or size > limits.MAX_HEADER_BYTES:
        raise InvalidMessage(
            f"{len(plain)} headers of {size} bytes are above the limits of {limits.MAX_HEADERS} "
            f"and {limits.MAX_HEADER_BYTES} bytes."
        )
    return plain


def _check_priority(priority: object) -> None:
    if isinstance(priority, bool) or not isinstance(priority, int) or priority not in PRIORITIES:
        raise InvalidMessage(
            f"priority must be a whole number from -32768 to 32767, not {priority!r}."
        )


def _check_cost(cost: object) -> None:
    if isinstance(cost, bool) or not isinstance(cost, int) or not 1 <= cost <= HIGHEST_COST:
        raise InvalidMessage(
            f"cost must be a whole number from 1 to {HIGHEST_COST:,}, not {cost!r}."
        )


def _check_times(draft: Draft) -> None:
    delay, at = draft.delay, draft.available_at
    if delay is not None and not (
        isinstance(delay, timedelta) and timedelta() <= delay <= LONGEST_DELAY
    ):
        raise InvalidMessage(f"delay must be a timedelta from 0 to 100 years, not {delay!r}.")
    if at is None:
        return
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise InvalidMessage(
            f"available_at must be an aware datetime, not {at!r}: give it a time zone."
        )
    if at - datetime.now(UTC) > LONGEST_DELAY:
        raise InvalidMessage(f"available_at must be within 100 years, not {at!r}.")
