"""Spans for OpenTelemetry, by its conventions for messaging.

    publish orders   around the write of messages. The messages carry its context.
    claim orders     around one claim, with a link to the publish of every claimed message
    process orders   around a handler, as a child of the publish
    step charge      around a step of a run of a workflow, as a child of the span of its handler
    push orders      around a delivery, as a child of the publish. The request carries its context.

Here `orders` is a channel and `charge` a step. The context travels in the headers `traceparent` and
`tracestate` (W3C) of a message. A message that the publisher gave such headers keeps them. Spans
have only the class of an error, because its text may quote a payload.
"""

from asyncio import CancelledError, current_task
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final

from opentelemetry import context, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from pulljobs import ids
from pulljobs.errors import HandlerSignal

W3C: Final = TraceContextTextMapPropagator()
CARRIED: Final = frozenset(W3C.fields)
CLIENT: Final = SpanKind.CLIENT
MOST_LINKS: Final = 128
"""Links of a span that SDKs keep by default."""


@contextmanager
def publishing(channel: str, headers: Sequence[MutableMapping[str, str]]) -> Iterator[None]:
    """Trace the write of messages in this block, and add a trace context to headers without one."""
    borne = [_context_in(each) for each in headers]
    known = list(filter(None, borne))
    attributes = _attributes("publish", "send", channel)
    if len(headers) > 1:
        attributes["messaging.batch.message_count"] = len(headers)
    kind = SpanKind.CLIENT if headers and all(borne) else SpanKind.PRODUCER
    with _span(f"publish {channel}", kind, attributes, _parent(known), _links(known)):
        for each, context_borne in zip(headers, borne, strict=True):
            if context_borne is None:
                W3C.inject(each)
        yield


def claimed(
    channel: str, consumer: str, headers: Sequence[Mapping[str, str]], *, began: int
) -> None:
    """Record the span of a claim that has ended, if a message carries a trace context.

    `headers` are those of each message. `began` is the start of the claim in ns since 1970.
    """
    known = list(filter(None, map(_context_in, headers)))
    if not known:
        return
    attributes = _attributes("claim", "receive", channel, consumer)
    attributes["messaging.batch.message_count"] = len(headers)
    _tracer().start_span(
        f"claim {channel}",
        _parent(known),
        SpanKind.CLIENT,
        attributes,
        _links(known),
        start_time=began,
    ).end()


def traced(
    handler: Callable[[Any], Any],
    channel: str,
    consumer: str,
    *,
    is_async: bool,
    operation: str = "process",
    kind: SpanKind = SpanKind.CONSUMER,
) -> Callable[[Any], Any]:
    """Return the handler with a span around each call.

    The handler gets a job of a worker or of a push delivery, or a message of `pulljobs.client`.
    """
    name, common = f"{operation} {channel}", _attributes(operation, "process", channel, consumer)

    @contextmanager
    def around(job: Any) -> Iterator[Span]:
        known = list(filter(None, [_context_in(job.headers)]))
        attributes = {**common, "messaging.message.id": _public(job.message_id)}
        attributes["pulljobs.job.id"] = _public(job.id)
        with _span(name, kind, attributes, _parent(known), _links(known)) as span:
            yield span

    def run(job: Any) -> Any:
        with around(job):
            return handler(job)

    async def arun(job: Any) -> Any:
        with around(job) as span:
            try:
                return await handler(job)
            except CancelledError as error:
                if not _is_stopped(job):
                    _fail(span, error)
                raise

    return wraps(handler)(arun if is_async else run)


@contextmanager
def step(name: str, number: int) -> Iterator[None]:
    """Trace a step of a run in this block. `number` counts the steps of that name, from 1 on."""
    attributes: dict[str, str | int] = {
        "pulljobs.step.name": name,
        "pulljobs.step.number": number,
    }
    with _span(f"step {name}", SpanKind.INTERNAL, attributes, None, []):
        yield


@contextmanager
def within(headers: Mapping[str, str]) -> Iterator[None]:
    """Make spans of this block children of the headers' trace context, unless a span is open."""
    known = _context_in(headers)
    if known is None or trace.get_current_span().get_span_context().is_valid:
        yield
        return
    token = context.attach(_in(known))
    try:
        yield
    finally:
        context.detach(token)


def carried() -> dict[str, str]:
    """Return the current trace context as headers of a message or a request, empty without one."""
    headers: dict[str, str] = {}
    W3C.inject(headers)
    return headers


@contextmanager
def _span(
    name: str,
    kind: SpanKind,
    attributes: Mapping[str, str | int],
    parent: Context | None,
    links: Sequence[Link],
) -> Iterator[Span]:
    with _tracer().start_as_current_span(
        name,
        parent,
        kind,
        attributes,
        links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except HandlerSignal as signal:
            span.set_attribute("pulljobs.signal", type(signal).__name__.lower())
            raise
        except Exception as error:
            _fail(span, error)
            raise


def _fail(span: Span, error: BaseException) -> None:
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR)


def _is_stopped(job: Any) -> bool:
    """Return True if the handler's task was cancelled because its process stops."""
    task = current_task()
    return task is not None and task.cancelling() > 0 and getattr(job, "stopping", True)


def _public(id: int | str) -> str:
    return ids.encode(id) if isinstance(id, int) else id


def _tracer() -> trace.Tracer:
    return trace.get_tracer("pulljobs")


def _attributes(
    operation: str, kind: str, channel: str, consumer: str | None = None
) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "pulljobs",
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
        "messaging.destination.name": channel,
    }
    if consumer is not None:
        attributes["messaging.consumer.group.name"] = consumer
    return attributes


def _context_in(headers: Mapping[str, str]) -> SpanContext | None:
    """Return the trace context in headers, with names in any case, or None if there is none."""
    carried = {name.lower(): value for name, value in headers.items() if name.lower() in CARRIED}
    context = trace.get_current_span(W3C.extract(carried, Context())).get_span_context()
    return context if context.is_valid else None


def _in(known: SpanContext) -> Context:
    return trace.set_span_in_context(trace.NonRecordingSpan(known), Context())


def _parent(known: Sequence[SpanContext]) -> Context | None:
    """Return the parent of a new span. None stands for the current span, or for a new trace.

    Without a current span it is the first of the messages' contexts, if all are of one trace.
    """
    goes_on = trace.get_current_span().get_span_context().is_valid
    if goes_on or len({link.trace_id for link in known}) != 1:
        return None
    return _in(known[0])


def _links(known: Sequence[SpanContext]) -> list[Link]:
    """Return one link to each different trace context, at most MOST_LINKS."""
    each = {(link.trace_id, link.span_id): link for link in known}
    return [Link(link) for link in list(each.values())[:MOST_LINKS]]
