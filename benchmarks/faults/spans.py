"""Stretches of time: how they merge, overlap and leave gaps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple


class Span(NamedTuple):
    """Begin and end of a stretch of time, in seconds of one clock."""

    since: float
    until: float

    @property
    def seconds(self) -> float:
        """Length of the span."""
        return self.until - self.since


def merge(spans: Iterable[Span]) -> Iterator[Span]:
    """Merge spans that overlap or touch each other. Yield the merged spans in order."""
    merged: Span | None = None
    for span in sorted(spans):
        if merged is not None and span.since <= merged.until:
            merged = Span(merged.since, max(merged.until, span.until))
            continue
        if merged is not None:
            yield merged
        merged = span
    if merged is not None:
        yield merged


def overlap(first: Iterable[Span], second: Iterable[Span]) -> Iterator[Span]:
    """Yield the spans that are in both series, each of which is in order and without overlaps."""
    left, right = iter(first), iter(second)
    span, against = next(left, None), next(right, None)
    while span and against:
        both = Span(max(span.since, against.since), min(span.until, against.until))
        if both.seconds > 0:
            yield both
        if span.until <= against.until:
            span = next(left, None)
        else:
            against = next(right, None)


def invert(spans: Iterable[Span]) -> Sequence[Span]:
    """Return the gaps between these spans, with the infinite gaps before and after them."""
    busy = list(merge(spans))
    begins = [float("-inf"), *(span.until for span in busy)]
    ends = [*(span.since for span in busy), float("inf")]
    return [Span(*pair) for pair in zip(begins, ends, strict=True)]
