"""`pulljobs publish` writes what `publish` would, and refuses what that would."""

import sys
from datetime import UTC, datetime, timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from pulljobs import ids
from pulljobs.models import Consumer, Job, Message, Producer
from tests.diagnosis.commands import answer, text
from tests.factories import ConsumerFactory
from tests.sessions import contents


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(data)))


def test_message_is_as_it_was_given(consumer: Consumer) -> None:
    shop = Producer.objects.create(name="shop")
    ConsumerFactory.create(channel=consumer.channel)
    told, code = answer(
        "publish", "orders", '{"order": 7}', "--key=k", "--priority=-3", "--delay=2h",
        "--message-id=m-1", "--header=a=b=c", "--header", "d=", "--producer=shop",
    )  # fmt: skip
    message = Message.objects.get()
    assert (code, told["message"]) == (0, ids.encode(message.pk))
    assert bytes(message.payload) == b'{"order": 7}'
    assert message.content_type == "application/json"
    assert (message.key, message.priority, message.client_message_id) == ("k", -3, "m-1")
    assert message.headers == {"a": "b=c", "d": ""}
    assert message.producer == shop
    assert sorted(told["jobs"]) == sorted(ids.encode(job.pk) for job in Job.objects.all())
    due = Job.objects.filter(consumer=consumer).get().available_at
    assert due is not None
    assert timedelta(hours=1, minutes=50) < due - timezone.now() <= timedelta(hours=2)


def test_it_is_the_operators_own_unless_a_producer_is_named(consumer: Consumer) -> None:
    answer("publish", "orders", "x", "--at", "2099-01-01T08:00+02:00")
    assert Message.objects.get().producer is None
    assert Job.objects.get().available_at == datetime(2099, 1, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        (b'[1, {"a": 2}]', "application/json"),
        (b"{no json", "text/plain"),
        (b"12", "text/plain"),
        (b"\xff\x00", "application/octet-stream"),
    ],
)
def test_payload_is_told_by_what_it_is(
    payload: bytes, kind: str, consumer: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(payload)
    answer("publish", "orders", "--file", str(file))
    piped(monkeypatch, payload)
    answer("publish", "orders", "-")
    piped(monkeypatch, payload)
    answer("publish", "orders", "--content-type=x/y")
    found = list(Message.objects.order_by("id"))
    assert {bytes(one.payload) for one in found} == {payload}
    kinds = [one.content_type.partition(";")[0] for one in found]
    assert kinds == [kind, kind, "x/y"]


def test_lines_are_published_together_or_not_at_all(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, b'{"n": 1}\r\n\n' + b"x\n" * 1500)
    told, code = answer("publish", "orders", "--lines")
    assert (code, told) == (0, {"messages": 1501, "jobs": 1501, "duplicates": 0, "key_full": 0})
    before = contents()
    piped(monkeypatch, b"x\n" * 1200 + b"y" * (1024 * 1024 + 1))
    with pytest.raises(CommandError, match="the limit is") as raised:
        call_command("pulljobs", "publish", "orders", "--lines")
    assert raised.value.returncode == 2
    assert contents() == before


def test_message_that_was_sent_before_is_told_and_sent_no_more(consumer: Consumer) -> None:
    answer("publish", "orders", "x", "--message-id=m-1")
    before = contents()
    with pytest.raises(CommandError, match="dedupe window") as raised:
        call_command("pulljobs", "publish", "orders", "x", "--message-id=m-1")
    assert raised.value.returncode == 1
    assert contents() == before


def test_channel_without_consumers_is_told(consumer: Consumer) -> None:
    consumer.deleted_at = timezone.now()
    consumer.save()
    assert "nobody gets it" in text("publish", "orders", "x")
