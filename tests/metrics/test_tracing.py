"""A trace follows a message: through publish, claim and handler, over HTTP, and into a POST."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.db.models.functions import Now
from opentelemetry.trace import SpanKind, StatusCode

from pulljobs import handlers, ids, scheduling
from pulljobs.client import AsyncProducer, Connection, Producer, PullConsumer
from pulljobs.client.handling import Handling
from pulljobs.client.messages import Received
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.errors import Retry
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.models import Channel, Message, ScheduledMessage
from pulljobs.publishing import publish, publish_many
from pulljobs.testing import drain
from pulljobs.worker.event_loop import EventLoop
from pulljobs.worker.push_delivery import PushDelivery
from pulljobs.worker.result_buffer import ResultBuffer
from tests.api.broadcasting import Announcer
from tests.api.caller import subscription
from tests.client.names import SHOP, SUBSCRIPTION
from tests.client.worlds import Mocked
from tests.handling import registry_of_its_own
from tests.metrics.tracing import Trace, id_of, links_of, parent_of, traced
from tests.webhooks.conftest import Opened, endpoint
from tests.webhooks.endpoint import answering
from tests.webhooks.sending import LIMITS, consumer_at, job_of
from tests.worker.claiming import unclaimed

__all__ = ["endpoint"]
BROKER = "http://broker"
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CLOSED = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NEXT_YEAR = datetime.now(UTC) + timedelta(days=365)
CALLED = (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trace]:
    with traced(monkeypatch) as kept:
        yield kept


@pytest.fixture
def billing() -> Iterator[None]:
    with registry_of_its_own():

        @handler(channel="orders", consumer="billing")
        def bill(job: ClaimedJob) -> None:
            if job.payload == b"broken":
                raise ValueError("a secret")
            if job.payload == b"later":
                raise Retry

        yield


@pytest.fixture
def orders(transactional_db: None, billing: None) -> None:
    handlers.sync_consumers()


def test_one_trace_joins_publish_claim_and_handler(orders: None, trace: Trace) -> None:
    """The spans of claim and handler are children of the publish, with OpenTelemetry's names."""
    receipt = publish("orders", b"1", headers={"Lang": "de"})
    drain()
    published, claimed, done = (trace.find(f"{verb} orders") for verb in VERBS)
    assert [span.kind for span in (published, claimed, done)] == [
        SpanKind.PRODUCER,
        SpanKind.CLIENT,
        SpanKind.CONSUMER,
    ]
    assert parent_of(published) is None
    assert parent_of(claimed) == parent_of(done) == id_of(published)
    assert links_of(claimed) == links_of(done) == [id_of(published)]
    attributes = dict(done.attributes or {})
    assert attributes.pop("messaging.message.id") == ids.encode(receipt.message_id)
    assert attributes.pop("pulljobs.job.id") == ids.encode(receipt.job_ids[0])
    assert attributes == {
        "messaging.system": "pulljobs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "billing",
    }
    assert Message.objects.get().headers.keys() == {"Lang", "traceparent"}


VERBS = ("publish", "claim", "process")


def test_a_claim_of_two_traces_is_in_neither_and_links_both(orders: None, trace: Trace) -> None:
    publish("orders", b"1")
    publish_many("orders", [b"2", b"3"])
    drain()
    first, second = (id_of(span) for span in trace.spans if span.name == "publish orders")
    claimed = trace.find("claim orders")
    assert parent_of(claimed) is None
    assert set(links_of(claimed)) == {first, second}
    assert (claimed.attributes or {})["messaging.batch.message_count"] == 3
    done = Counter(parent_of(span) for span in trace.spans if span.name == "process orders")
    assert done == {first: 1, second: 2}


def test_a_scheduled_message_goes_on_with_its_trace_though_its_headers_were_all_there_may_be(
    orders: None, trace: Trace
) -> None:
    headers = {f"h{number}": "v" for number in range(settings().MAX_HEADERS)}
    orders_channel = Channel.objects.get(name="orders")
    scheduling.schedule(orders_channel, b"1", NEXT_YEAR, headers=headers)
    ScheduledMessage.objects.update(dispatch_at=Now())
    assert scheduling.dispatch() == 1
    drain()
    scheduled, _published = [span for span in trace.spans if span.name == "publish orders"]
    assert parent_of(trace.find("process orders")) == id_of(scheduled)
    assert Message.objects.get().headers.keys() == {*headers, "traceparent"}


def test_errors_are_recorded_by_their_kind_alone(orders: None, trace: Trace) -> None:
    """A span has no text of an error, which may quote a payload. A requested retry is no error."""
    publish("orders", b"broken")
    publish("orders", b"later")
    drain()
    broken, later = [span for span in trace.spans if span.name == "process orders"]
    assert broken.status.status_code is StatusCode.ERROR
    assert (broken.attributes or {})["error.type"] == "ValueError"
    assert later.status.status_code is StatusCode.UNSET
    assert (later.attributes or {})["pulljobs.signal"] == "retry"
    assert not [span for span in trace.spans if "secret" in span.to_json()]


@pytest.mark.parametrize("is_stopping", [False, True])
def test_a_handler_that_is_ended_has_failed_unless_its_worker_stops(
    trace: Trace, is_stopping: bool
) -> None:
    """The span of a cancelled handler has the status ERROR, unless its worker is stopping."""
    job = unclaimed()
    grant: Any = job._grant
    grant.stopping = lambda: is_stopping
    status = _of_cancelled(job, trace)
    assert status is (StatusCode.UNSET if is_stopping else StatusCode.ERROR)


def test_a_handler_of_the_client_is_cancelled_by_its_stop_alone(trace: Trace) -> None:
    assert _of_cancelled(_fetched(), trace) is StatusCode.UNSET


def test_a_handler_that_cancels_what_it_waits_for_has_failed(trace: Trace) -> None:
    async def give_up(job: ClaimedJob) -> None:
        task = asyncio.create_task(asyncio.sleep(600))
        task.cancel()
        await task

    function = tracing.handler(give_up, ("orders", "billing"), is_async=True)
    with suppress(asyncio.CancelledError):
        asyncio.run(function(unclaimed()))
    assert trace.find("process orders").status.status_code is StatusCode.ERROR


def _of_cancelled(job: Any, trace: Trace) -> StatusCode:
    async def cancelled() -> None:
        begun = asyncio.Event()

        async def wait(job: object) -> None:
            begun.set()
            await asyncio.sleep(600)

        function = tracing.handler(wait, ("orders", "billing"), is_async=True)
        task = asyncio.create_task(function(job))
        await begun.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    return trace.find("process orders").status.status_code


def test_a_publish_over_http_is_part_of_the_caller_s_trace(orders: None, trace: Trace) -> None:
    """A message keeps a `traceparent` of its own. Without it, the trace of the request goes on."""
    announcer = Announcer(*_channel())
    announcer.headers["traceparent"] = CALLER
    assert announcer.post().status_code == 201
    assert parent_of(trace.find("publish orders")) == CALLED
    assert announcer.post(Metadata_Headers="traceparent").status_code == 201
    drain()
    first, second = [span for span in trace.spans if span.name == "process orders"]
    assert parent_of(first) == id_of(trace.spans[0])
    assert parent_of(second) == CALLED


def _channel() -> tuple[Channel, str]:
    made = subscription("orders", "another")
    return made.consumer.channel, made.channel_token


def test_a_client_s_trace_goes_on_in_its_handlers(trace: Trace) -> None:
    """The message of a client without Django carries the context of its producer to its handler."""
    message = _fetched()
    assert message.headers.keys() == {"Lang", "traceparent"}
    Handling(print, 6, None, None).traced("orders", "census").run(message)
    done = trace.find("process orders")
    assert parent_of(done) == id_of(trace.find("publish orders"))
    assert (done.attributes or {})["pulljobs.job.id"] == message.id


def _fetched() -> Received[None, float]:
    world = Mocked()
    connection = world.connection(is_async=False)
    with Producer(world.base_url, "orders", "shop", **SHOP, connection=connection) as producer:
        producer.publish(b"1", headers={"Lang": "de"})
    with PullConsumer(world.base_url, SUBSCRIPTION, connection=connection) as consumer:
        [message] = consumer.fetch(1, timeout=5)
    return message


def test_the_span_of_a_cancelled_publish_ends_with_it(
    trace: Trace, caplog: pytest.LogCaptureFixture
) -> None:
    """The client closes the span in the task that opened it, so OpenTelemetry logs no error."""

    async def cancel() -> None:
        asked = asyncio.Event()

        async def wait(request: httpx.Request) -> httpx.Response:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError

        connection = Connection(transport=httpx.MockTransport(wait))
        async with AsyncProducer(BROKER, "orders", "shop", **SHOP, connection=connection) as shop:
            publish = asyncio.create_task(shop.publish(b"1"))
            await asked.wait()
            publish.cancel()
            await asyncio.wait([publish])
            trace.find("publish orders")  # it has ended

    asyncio.run(cancel())
    gc.collect()
    assert "Failed to detach" not in caplog.text


def test_a_push_bears_its_own_context_to_the_receiver(
    transactional_db: None, endpoint: Opened, trace: Trace
) -> None:
    there, loop, ended = endpoint(answering(CLOSED)), EventLoop(), threading.Event()
    push_delivery = PushDelivery(LIMITS, loop, ResultBuffer(), lambda pool: None)
    loop.start()
    job = job_of(headers={"Traceparent": CALLER})
    job.extend(time.monotonic())
    job.handler = push_delivery.pool(consumer_at(there.url, pk=1)).handler
    push_delivery.run(job, ended.set)
    assert ended.wait(20)
    loop.stop()
    [got] = there.received
    pushed = trace.find("push orders")
    assert parent_of(pushed) == CALLED
    assert str(got.header("traceparent")).split("-")[2] == f"{id_of(pushed)[1]:016x}"


def test_switched_off_nothing_is_added(orders: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with traced(monkeypatch) as kept:
        spans_before = kept.spans
    publish("orders", b"1")
    drain()
    assert kept.spans == spans_before
    assert Message.objects.get().headers == {}


def test_without_opentelemetry_nothing_is_missing() -> None:
    """Without the package, the client still publishes and runs handlers, and nothing is traced."""
    program = """
import sys
sys.modules["opentelemetry"] = None
from pulljobs.engine import tracing
from pulljobs.client import tracing as client
from pulljobs.client.handling import Handling
from pulljobs.client.messages import Received
assert not tracing.is_installed()
with tracing.publishing("orders", [{}]), client.publishing("orders", [carried := {}]):
    pass
assert carried == tracing.carried() == {}
assert Handling(print, 6, None, None).traced("orders", "census").handler is print
assert "pulljobs.engine.spans" not in sys.modules and "django" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
