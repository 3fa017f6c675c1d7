"""Bad input gets a documented error that says what to do, and nothing is written."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import override_settings

from pulljobs.errors import InvalidMessage, PayloadTooLarge, PublishError, UnknownChannel
from pulljobs.models import Channel, Producer, ScheduledMessage
from pulljobs.publishing import Draft, apublish, publish, publish_many
from pulljobs.scheduling import schedule
from tests.factories import ConsumerFactory
from tests.sessions import counts

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def channel() -> Iterator[str]:
    name: str = ConsumerFactory.create().channel.name
    before = counts()
    yield name
    assert counts() == before == dict.fromkeys(before, 0)


class Odd:
    """Payload that can't be written as JSON."""


ring: list[Any] = []
ring.append(ring)
deep: list[Any] = []
for _ in range(100_000):
    deep = [deep]

BAD: dict[str, tuple[type[PublishError], dict[str, Any]]] = {
    "an object": (InvalidMessage, {"payload": Odd()}),
    "a set": (InvalidMessage, {"payload": {1, 2}}),
    "NaN": (InvalidMessage, {"payload": {"n": float("nan")}}),
    "infinity": (InvalidMessage, {"payload": [float("-inf")]}),
    "a ring": (InvalidMessage, {"payload": ring}),
    "too deep": (InvalidMessage, {"payload": deep}),
    "a tuple for a key": (InvalidMessage, {"payload": {(1, 2): 3}}),
    "half a pair in text": (InvalidMessage, {"payload": "\ud800"}),
    "too large": (PayloadTooLarge, {"payload": b"x" * (1024 * 1024 + 1)}),
    "too large in bytes": (PayloadTooLarge, {"payload": "ü" * (512 * 1024 + 1)}),
    "NUL in the key": (InvalidMessage, {"key": "a\x00"}),
    "half a pair in the key": (InvalidMessage, {"key": "\udcff"}),
    "an empty key": (InvalidMessage, {"key": ""}),
    "a key too long": (InvalidMessage, {"key": "k" * 256}),
    "a key of another type": (InvalidMessage, {"key": 5}),
    "NUL in the message id": (InvalidMessage, {"message_id": "\x00"}),
    "half a pair in the message id": (InvalidMessage, {"message_id": "\ud834"}),
    "a message id too long": (InvalidMessage, {"message_id": "m" * 256}),
    "an empty message id": (InvalidMessage, {"message_id": ""}),
    "NUL in a header": (InvalidMessage, {"headers": {"a": "\x00"}}),
    "NUL in a header's name": (InvalidMessage, {"headers": {"\x00": "a"}}),
    "half a pair in a header": (InvalidMessage, {"headers": {"a": "\ud800"}}),
    "a header of another type": (InvalidMessage, {"headers": {"a": 1}}),
    "a header's name of another type": (InvalidMessage, {"headers": {1: "a"}}),
    "headers that are no mapping": (InvalidMessage, {"headers": ["a"]}),
    "too many headers": (InvalidMessage, {"headers": {str(n): "" for n in range(65)}}),
    "headers too large": (InvalidMessage, {"headers": {"a": "x" * 16 * 1024}}),
    "NUL in the content type": (InvalidMessage, {"content_type": "a\x00"}),
    "a content type too long": (InvalidMessage, {"content_type": "c" * 256}),
    "a line break in the content type": (InvalidMessage, {"content_type": "text/plain\r\nX: y"}),
    "a priority too high": (InvalidMessage, {"priority": 32_768}),
    "a priority too low": (InvalidMessage, {"priority": -32_769}),
    "a bool for a priority": (InvalidMessage, {"priority": True}),
    "a fraction for a priority": (InvalidMessage, {"priority": 1.0}),
    "a decimal for a priority": (InvalidMessage, {"priority": Decimal(1)}),
    "text for a priority": (InvalidMessage, {"priority": "1"}),
    "no priority": (InvalidMessage, {"priority": None}),
    "a naive time": (InvalidMessage, {"available_at": datetime(2030, 1, 1)}),  # noqa: DTZ001  that is the point
    "text for a time": (InvalidMessage, {"available_at": "2030-01-01T00:00Z"}),
    "a time that is no time in UTC": (
        InvalidMessage,
        {"available_at": datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))},
    ),
    "a time too far off": (InvalidMessage, {"available_at": datetime.max.replace(tzinfo=UTC)}),
    "a delay in the past": (InvalidMessage, {"delay": timedelta(seconds=-1)}),
    "a delay too long": (InvalidMessage, {"delay": timedelta(days=36_501)}),
    "a number for a delay": (InvalidMessage, {"delay": 5}),
}
CASES = pytest.mark.parametrize(("error", "bad"), BAD.values(), ids=BAD)


@CASES
def test_publish(channel: str, error: type[PublishError], bad: dict[str, Any]) -> None:
    """`publish` refuses every bad argument with its documented error."""
    with pytest.raises(error, match=".{20}"):
        publish(channel, **({"payload": b"x"} | bad))


@CASES
def test_apublish(channel: str, error: type[PublishError], bad: dict[str, Any]) -> None:
    """`apublish` refuses what `publish` refuses, with the same errors."""
    with pytest.raises(error):
        async_to_sync(apublish)(channel, **({"payload": b"x"} | bad))


@CASES
def test_one_in_many_refuses_all(
    channel: str, error: type[PublishError], bad: dict[str, Any]
) -> None:
    drafts = [Draft(payload=n, message_id=str(n)) for n in range(1_100)]
    with pytest.raises(error):
        publish_many(channel, [*drafts, Draft(**({"payload": b"x"} | bad)), b"last"])


@pytest.mark.parametrize("unknown", ["nowhere", "", "a\x00b", "\ud800", None])
def test_an_unknown_channel(unknown: Any) -> None:
    """A publish to an unknown channel raises UnknownChannel, which says how to create it."""
    with pytest.raises(UnknownChannel, match="create it"):
        publish(unknown, b"x")
    with pytest.raises(UnknownChannel):
        publish_many(unknown, [b"x"])


def test_the_row_of_a_channel_in_place_of_its_name(channel: str) -> None:
    row: Any = Channel.objects.get()
    with pytest.raises(InvalidMessage, match=rf"must be its name, as text, not <.*{channel}>"):
        publish(row, b"x")
    with pytest.raises(InvalidMessage, match="must be its name"):
        publish_many(row, [b"x"])


@pytest.mark.parametrize("name", ["orders", None])
def test_the_name_of_a_channel_in_place_of_its_row(name: Any) -> None:
    with pytest.raises(InvalidMessage, match=f"must be a Channel, the row itself, not {name!r}"):
        schedule(name, b"x", datetime.now(UTC) + timedelta(days=1))


@pytest.mark.parametrize("at", ["2060-01-01T00:00Z", date(2060, 1, 1), datetime(2060, 1, 1)])  # noqa: DTZ001  that is the point
def test_what_is_no_time_to_schedule_for(channel: str, at: Any) -> None:
    with pytest.raises(InvalidMessage, match=r"must be an aware datetime: give it a time zone\."):
        schedule(Channel.objects.get(), b"x", at)
    assert not ScheduledMessage.objects.exists()


@pytest.mark.parametrize("payload", ["abc", b"abc", {"order": 1}])
def test_one_payload_in_place_of_many(channel: str, payload: Any) -> None:
    """`publish_many` refuses a single payload, instead of publishing each of its letters."""
    with pytest.raises(InvalidMessage, match=r"put it in a list, or call publish"):
        publish_many(channel, payload)


def test_a_producer_by_its_name(channel: str) -> None:
    for shop in ("shop", ""):
        with pytest.raises(
            InvalidMessage, match=f"must be a Producer, the row itself, not '{shop}'"
        ):
            publish(channel, b"x", producer=shop)  # type: ignore[arg-type]  # as a caller without type checks may


def test_a_producer_that_was_not_saved(channel: str) -> None:
    """A publish by an unsaved producer is refused, because its message would have none."""
    with pytest.raises(InvalidMessage, match="Producer 'shop' is not in the database: save it"):
        publish(channel, b"x", producer=Producer(name="shop"))


@override_settings(PULLJOBS={"MAX_PAYLOAD_BYTES": 10, "MAX_HEADERS": 1})
def test_limits_are_settings(channel: str) -> None:
    with pytest.raises(PayloadTooLarge, match=r"11 bytes, the limit is 10"):
        publish(channel, b"x" * 11)
    with pytest.raises(InvalidMessage, match="2 headers"):
        publish(channel, b"x", headers={"a": "", "b": ""})
