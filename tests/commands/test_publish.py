"""`pulljobs publish` writes and refuses the same messages as the function `publish`."""

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


def test_a_message_has_the_fields_of_the_arguments(consumer: Consumer) -> None:
    shop = Producer.objects.create(name="shop")
    ConsumerFactory.create(channel=consumer.channel)
    result, code = answer(
        "publish", "orders", '{"order": 7}', "--key=k", "--priority=-3", "--delay=2h",
        "--message-id=m-1", "--header=a=b=c", "--header", "d=", "--producer=shop",
    )  # fmt: skip
    message = Message.objects.get()
    assert (code, result["message"]) == (0, ids.encode(message.pk))
    assert bytes(message.payload) == b'{"order": 7}'
    assert message.content_type == "application/json"
    assert (message.key, message.priority, message.client_message_id) == ("k", -3, "m-1")
    assert message.headers == {"a": "b=c", "d": ""}
    assert message.producer == shop
    assert sorted(result["jobs"]) == sorted(ids.encode(job.pk) for job in Job.objects.all())
    due = Job.objects.filter(consumer=consumer).get().available_at
    assert due is not None
    assert timedelta(hours=1, minutes=50) < due - timezone.now() <= timedelta(hours=2)


def test_a_message_has_no_producer_unless_an_argument_names_it(consumer: Consumer) -> None:
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
def test_the_content_type_follows_from_the_payload(
    payload: bytes, kind: str, consumer: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "payload"
    file.write_bytes(payload)
    answer("publish", "orders", "--file", str(file))
    piped(monkeypatch, payload)
    answer("publish", "orders", "-")
    piped(monkeypatch, payload)
    answer("publish", "orders", "--content-type=x/y")
    messages = list(Message.objects.order_by("id"))
    assert {bytes(message.payload) for message in messages} == {payload}
    kinds = [message.content_type.partition(";")[0] for message in messages]
    assert kinds == [kind, kind, "x/y"]


def test_lines_are_published_together_or_not_at_all(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped(monkeypatch, b'{"n": 1}\r\n\n' + b"x\n" * 1500)
    result, code = answer("publish", "orders", "--lines")
    assert (code, result) == (0, {"messages": 1501, "jobs": 1501, "duplicates": 0, "key_full": 0})
    before = contents()
    piped(monkeypatch, b"x\n" * 1200 + b"y" * (1024 * 1024 + 1))
    with pytest.raises(CommandError, match="the limit is") as raised:
        call_command("pulljobs", "publish", "orders", "--lines")
    assert raised.value.returncode == 2
    assert contents() == before


def test_a_message_id_is_published_once_and_the_second_is_an_error(consumer: Consumer) -> None:
    answer("publish", "orders", "x", "--message-id=m-1")
    before = contents()
    with pytest.raises(CommandError, match="dedupe window") as raised:
        call_command("pulljobs", "publish", "orders", "x", "--message-id=m-1")
    assert raised.value.returncode == 1
    assert contents() == before


def test_publishing_on_a_channel_without_consumers_warns(consumer: Consumer) -> None:
    consumer.deleted_at = timezone.now()
    consumer.save()
    assert "no job was created" in text("publish", "orders", "x")
