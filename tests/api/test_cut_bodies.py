"""Bodies under WSGI that a connection cuts short, and chunked bodies."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from io import BytesIO
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from django.core.handlers.wsgi import WSGIHandler
from django.test import override_settings

from pulljobs.conf import SETTING
from pulljobs.models import Job, Message, Producer
from pulljobs.signing import sign_for_gateway
from pulljobs.states import State
from tests.api.caller import Subscription, publish
from tests.api.leases.serving import close_waiters

PULL, ACK = "/channel/orders/consumer/census/pull", "/channel/orders/consumer/census/ack"
BROADCAST = "/channel/orders/broadcast"
SECRET = "c2VjcmV0"


@pytest.fixture
def tokens(census: Subscription) -> Iterator[dict[str, str]]:
    producer = Producer(name="shop")
    producer.set_token("shop-token")
    producer.save()
    yield {
        "HTTP_X_BROKER_CHANNEL_TOKEN": census.channel_token,
        "HTTP_X_BROKER_CONSUMER_TOKEN": census.consumer_token,
        "HTTP_X_BROKER_PRODUCER_ID": "shop",
        "HTTP_X_BROKER_PRODUCER_TOKEN": "shop-token",
    }
    close_waiters()


class BrokenInput(BytesIO):
    """Body of a server that raises an error at the end of a connection."""

    def read(self, size: int | None = -1) -> bytes:
        raise OSError("connection reset")


def send(path: str, body: BytesIO, tokens: dict[str, str], **environ: Any) -> tuple[str, bytes]:
    """Send a POST as a WSGI server does. Return the status with its phrase, and the body."""
    started: list[str] = []
    full: dict[str, Any] = {"REQUEST_METHOD": "POST", "PATH_INFO": path, "wsgi.input": body}
    full |= {"HTTP_HOST": "localhost", **tokens, **environ}
    setup_testing_defaults(full)
    answer = WSGIHandler()(full, lambda status, *rest: started.append(status))  # type: ignore[arg-type]
    return started[0], b"".join(answer)


@pytest.mark.parametrize("secrets", [[], [SECRET]], ids=["open", "signed"])
@pytest.mark.parametrize(
    "stream", [partial(BytesIO, b"half"), BrokenInput], ids=["short", "broken"]
)
def test_a_message_that_is_cut_short_is_not_published(
    stream: Callable[[], BytesIO], secrets: list[str], tokens: dict[str, str]
) -> None:
    """A message that ends before its Content-Length, as in a crash of its producer, is 400."""
    with override_settings(**{SETTING: {"GATEWAY_SECRETS": secrets}}):
        status, text = send(BROADCAST, stream(), tokens, CONTENT_LENGTH="1000")
    assert (status[:3], Message.objects.count()) == ("400", 0)
    assert text.startswith(b"The connection ended before the body did")


@pytest.mark.parametrize("coding", ["chunked", "Chunked"])
def test_a_chunked_body_is_read_where_the_server_marks_its_end(
    coding: str, tokens: dict[str, str]
) -> None:
    publish()
    chunked = {"HTTP_TRANSFER_ENCODING": coding, "wsgi.input_terminated": True}
    _status, pulled = send(PULL, BytesIO(b'{"IncrementalTimeout": 5}'), tokens, **chunked)
    [job] = json.loads(pulled)["Result"]
    outcome = {"ID": job["ID"], "LeaseToken": job["LeaseToken"], "Outcome": "DEAD"}
    body = BytesIO(json.dumps({"Results": [outcome]}).encode())
    status, acked = send(ACK, body, tokens, **chunked)
    assert (status[:3], json.loads(acked)["Results"][0]["Status"]) == ("200", "ok")
    assert not Job.objects.exclude(state=State.DEAD).exists()


def look_at_body(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Middleware that looks at bodies, as one that writes logs does."""

    def answer(request: Any) -> Any:
        assert request.body == b"", "Django gives no chunked body"
        return get_response(request)

    return answer


def test_a_chunked_body_is_read_after_a_middleware_has_looked_at_it(
    tokens: dict[str, str], settings: Any
) -> None:
    settings.MIDDLEWARE = [f"{__name__}.look_at_body", *settings.MIDDLEWARE]
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    status, _text = send(BROADCAST, BytesIO(b"whole"), tokens, **chunked)
    assert status[:3] == "201"
    assert Message.objects.get().payload == b"whole"


def test_the_gateway_leaves_a_chunked_body_readable(tokens: dict[str, str]) -> None:
    now = str(int(time.time()))
    signed = f"t={now},v1={sign_for_gateway(SECRET, now, b'whole')}"
    chunked = {"HTTP_TRANSFER_ENCODING": "chunked", "wsgi.input_terminated": True}
    with override_settings(**{SETTING: {"GATEWAY_SECRETS": [SECRET]}}):
        status, text = send(
            BROADCAST, BytesIO(b"whole"), tokens, HTTP_X_BROKER_SIGNATURE=signed, **chunked
        )
    assert (status[:3], text) == ("201", b"")
    assert Message.objects.get().payload == b"whole"


@pytest.mark.parametrize("path", [BROADCAST, PULL, ACK])
def test_a_chunked_body_that_the_server_leaves_encoded_is_refused(
    path: str, tokens: dict[str, str]
) -> None:
    """A chunked body that the server did not decode is 400, and is not taken for an empty body."""
    publish()
    sent = BytesIO(b"5\r\nwhole\r\n0\r\n\r\n")
    status, text = send(path, sent, tokens, HTTP_TRANSFER_ENCODING="chunked")
    assert status[:3] == "400"
    assert b"send Content-Length" in text
    assert (Message.objects.count(), Job.objects.get().state) == (1, State.QUEUED)
