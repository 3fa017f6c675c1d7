"""`assert_published` finds published messages and lists them when it fails."""

import pytest

from pulljobs.models import Channel
from pulljobs.publishing import publish
from pulljobs.testing import assert_published, published
from tests.factories import ChannelFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def channel() -> Channel:
    return ChannelFactory.create()


def test_messages_come_in_order_with_all_their_fields(channel: Channel) -> None:
    publish(channel.name, {"b": 1, "a": 2}, key="k", priority=3, headers={"h": "v"})
    publish(channel.name, b"\xff", message_id="m")
    first, second = published(channel.name)
    assert (first.json(), first.key, first.priority) == ({"a": 2, "b": 1}, "k", 3)
    assert (first.headers, first.content_type) == ({"h": "v"}, "application/json")
    assert (second.payload, second.message_id, second.key) == (b"\xff", "m", None)


def test_payloads_are_compared_by_their_meaning(channel: Channel) -> None:
    publish(channel.name, '{"b":1,\n"a":2}')
    publish(channel.name, b"\xff")
    publish(channel.name, "text")
    assert len(assert_published(channel.name, {"a": 2, "b": 1}, count=1)) == 1
    assert_published(channel.name, b"\xff", count=1)
    assert_published(channel.name, "text", count=1)
    assert_published(channel.name, {"a": 2}, count=0)


def test_counts_and_attributes_are_exact(channel: Channel) -> None:
    publish(channel.name, 1, key="k")
    publish(channel.name, 1)
    assert_published(channel.name, 1)
    assert_published(channel.name, count=2)
    assert_published(channel.name, 1, key="k", count=1)
    assert_published(channel.name, 1, key=None, priority=0, count=1)
    for wrong in ({"count": 1}, {"key": "other"}, {"payload": 2}, {"count": 0}):
        with pytest.raises(AssertionError):
            assert_published(channel.name, **wrong)


def test_failure_shows_what_was_published(channel: Channel) -> None:
    publish(channel.name, "this", key="k")
    with pytest.raises(AssertionError, match=r"(?s)payload='that'; 0 of 1 .*b'this' key='k'"):
        assert_published(channel.name, "that")


def test_a_failure_on_an_empty_channel_says_so(channel: Channel) -> None:
    with pytest.raises(AssertionError, match="with anything; there are no messages\\.$"):
        assert_published(channel.name)
