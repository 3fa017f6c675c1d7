"""The recorder for Prometheus: events become counters and histograms, a batch at a time."""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from functools import cache, singledispatch
from threading import Lock
from typing import Any, Final

from prometheus_client import Counter, Histogram

from pulljobs.engine import telemetry
from pulljobs.metrics.families import COUNTED, SECONDS, Type
from pulljobs.states import Event, State

FROM_THE_START: Final = (
    (Event.DELIVER, State.DELIVERED),
    (Event.REJECT, State.DEAD),
    (Event.RETRY, State.QUEUED),
    (Event.RETRY, State.DEAD),
    (Event.EXPIRE, State.QUEUED),
    (Event.EXPIRE, State.DEAD),
)
_making: Final = Lock()


class Batches(Histogram):
    """A histogram that is told of many at once."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Like `observe` for each, at the price of the buckets that they fall into."""
        if not amounts:
            return
        # Where the clock was set back, a wait is none.
        counted = [max(0.0, one) for one in amounts]
        self._sum.inc(sum(counted))
        falls = Tally(bisect_left(self._upper_bounds, one) for one in counted)
        for bucket, count in falls.items():
            self._buckets[bucket].inc(count)


@cache
def metrics() -> Mapping[str, Any]:
    """By the names of their families; made when first something is counted, not at the import.

    By then a process knows with whom it shares (`sharing`). They are in the registry of
    prometheus_client, so that a project's own exporter has them, too.
    """
    with _making:
        return _made()


@cache
def _made() -> Mapping[str, Any]:
    """Once: the registry refuses what a second thread would make at the same time."""
    return {
        family.name: Batches(family.name, family.meaning, family.labels, buckets=SECONDS)
        if family.type is Type.HISTOGRAM
        else Counter(family.name, family.meaning, family.labels)
        for family in COUNTED
    }


@singledispatch
def record(event: object) -> None:
    """Of the others nothing is counted."""


@record.register
def _(event: telemetry.JobsPublished) -> None:
    _count("pulljobs_messages_published_total", event.channel, by=event.messages)
    _count("pulljobs_jobs_published_total", event.channel, by=event.jobs)


@record.register
def _(event: telemetry.MessageHeldBack) -> None:
    _count("pulljobs_scheduled_held_back_total", event.channel)


@record.register
def _(event: telemetry.JobsClaimed) -> None:
    _introduce(event.channel, event.consumer)
    _count("pulljobs_jobs_claimed_total", event.channel, event.consumer, by=event.jobs)
    _observe("pulljobs_wait_seconds", event.channel, event.consumer, event.waits)


@record.register
def _(event: telemetry.HandlersRan) -> None:
    _observe("pulljobs_run_seconds", event.channel, event.consumer, event.seconds)


@record.register
def _(event: telemetry.JobsFinished) -> None:
    for (said, state), jobs in event.ends.items():
        _finished(event.channel, event.consumer, said, state, by=jobs)


@record.register
def _(event: telemetry.JobsExpired) -> None:
    for state, jobs in event.states.items():
        _finished(event.channel, event.consumer, Event.EXPIRE, state, by=jobs)


@record.register
def _(event: telemetry.LeasesLost) -> None:
    _count("pulljobs_leases_lost_total", event.channel, event.consumer, by=event.jobs)


@record.register
def _(event: telemetry.JobRefused) -> None:
    _count("pulljobs_outcomes_refused_total", event.channel, event.consumer)


@record.register
def _(event: telemetry.JobFailed) -> None:
    _failed(event.channel, event.consumer, "raised")


@record.register
def _(event: telemetry.JobTimedOut) -> None:
    _failed(event.channel, event.consumer, "timed_out")


@record.register
def _(event: telemetry.HandlerSilent) -> None:
    _failed(event.channel, event.consumer, "silent")


@record.register
def _(event: telemetry.GivingUpFailed) -> None:
    _failed(event.channel, event.consumer, "giving_up")


@record.register
def _(event: telemetry.PushAnswered) -> None:
    _count("pulljobs_push_answers_total", event.channel, event.consumer, event.answer)


@record.register
def _(event: telemetry.CircuitChanged) -> None:
    _count("pulljobs_circuit_changes_total", event.channel, event.consumer, event.state)


@record.register
def _(event: telemetry.LoopFailed) -> None:
    _count("pulljobs_loop_failures_total", event.loop)


@record.register
def _(event: telemetry.LeftBehind) -> None:
    _count("pulljobs_jobs_left_behind_total", by=len(event.jobs))


def _finished(channel: str, consumer: str, event: str, state: str, *, by: int) -> None:
    _count("pulljobs_jobs_finished_total", channel, consumer, event, state, by=by)


def _failed(channel: str, consumer: str, kind: str) -> None:
    _count("pulljobs_handler_failures_total", channel, consumer, kind)


def _count(name: str, *labels: str, by: int = 1) -> None:
    metric = metrics()[name]
    (metric.labels(*labels) if labels else metric).inc(by)


def _observe(name: str, channel: str, consumer: str, amounts: Sequence[float]) -> None:
    metrics()[name].labels(channel, consumer).observe_all(amounts)


@cache
def _introduce(channel: str, consumer: str) -> None:
    """Have its series begin at 0: a rate does not see the first of what begins with it."""
    for event, state in FROM_THE_START:
        _finished(channel, consumer, event, state, by=0)
    for kind in ("raised", "timed_out"):
        metrics()["pulljobs_handler_failures_total"].labels(channel, consumer, kind).inc(0)
    _count("pulljobs_leases_lost_total", channel, consumer, by=0)
