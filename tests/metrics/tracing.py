"""Spans of a test, kept in memory."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pulljobs.engine import tracing

NUMBER = re.compile(r"[\d.]+ ms")


class Trace:
    """Spans recorded during a test."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def find(self, name: str) -> ReadableSpan:
        [matching] = [span for span in self.spans if span.name == name]
        return matching


@contextmanager
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Trace]:
    """Yield the spans of the block, recorded without OpenTelemetry's global provider."""
    kept = Trace()
    monkeypatch.setattr(trace, "get_tracer", kept.provider.get_tracer)
    tracing.switch(True)
    try:
        yield kept
    finally:
        tracing.switch(False)


def id_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent_of(span: ReadableSpan) -> tuple[int, int] | None:
    return (span.parent.trace_id, span.parent.span_id) if span.parent else None


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def drawn(spans: Sequence[ReadableSpan]) -> str:
    """Return spans as the lines of a tree, in the order of their start, each with its duration."""
    ordered = sorted(spans, key=lambda span: span.start_time or 0)
    roots = [span for span in ordered if span.parent is None]
    return "\n".join(line for root in roots for line in _lines(root, ordered, "", ""))


def without_times(tree: str) -> str:
    return re.sub(r" +(?=- ms)", " ", NUMBER.sub("- ms", tree))


def _lines(
    span: ReadableSpan, spans: Sequence[ReadableSpan], first: str, others: str
) -> Iterator[str]:
    length = ((span.end_time or 0) - (span.start_time or 0)) / 1e6
    attributes = span.attributes or {}
    consumer = attributes.get("messaging.consumer.group.name", "")
    yield f"{first + span.name:26}{span.kind.name:10}{length:6.1f} ms  {consumer}".rstrip()
    children = [child for child in spans if parent_of(child) == id_of(span)]
    for child in children:
        is_last = child is children[-1]
        branch, below = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        yield from _lines(child, spans, others + branch, others + below)
