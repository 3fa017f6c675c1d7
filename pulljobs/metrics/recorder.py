"""Recorder of telemetry events in the counters and histograms of prometheus_client."""

from bisect import bisect_left
from collections import Counter as Tally
from collections.abc import Mapping, Sequence
from functools import cache, singledispatch
from threading import Lock
from typing import Any, Final

from prometheus_client import Counter, Histogram

from pulljobs.engine import telemetry
from pulljobs.metrics.families import SECONDS, Type, families_counted
from pulljobs.states import Event, State

FROM_THE_START: Final = (
    (Event.DELIVER, State.DELIVERED),
    (Event.REJECT, State.DEAD),
    (Event.RETRY, State.QUEUED),
    (Event.RETRY, State.DEAD),
    (Event.EXPIRE, State.QUEUED),
    (Event.EXPIRE, State.DEAD),
)
"""Events and new states whose series begin at 0 with the first claim of a consumer."""
_making: Final = Lock()


class Batches(Histogram):
    """Histogram that observes many amounts in one call."""

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observe each amount, with a single update of each bucket in which amounts fall."""
        if not amounts:
            return
        # A wait is negative if the clock was set back.
        counted = [max(0.0, amount) for amount in amounts]
        self._sum.inc(sum(counted))
        falls = Tally(bisect_left(self._upper_bounds, amount) for amount in counted)
        for bucket, count in falls.items():
            self._buckets[bucket].inc(count)


@cache
def metrics() -> Mapping[str, Any]:
    """Return the metrics by family name. They are created at the first event or reading.

    At import, a process does not know yet which directory of files it shares (`sharing`). The
    metrics are in the registry of prometheus_client, so that a project's own exporter has them,
    too.
    """
    with _making:
        return _create()


@cache
def _create() -> Mapping[str, Any]:
    """Create the metrics, once: the registry of prometheus_client refuses a name that it has."""
    return {
        family.name: Batches(family.name, family.meaning, family.labels, buckets=SECONDS)
        if family.type is Type.HISTOGRAM
        else Counter(family.name, family.meaning, family.labels)
        for family in families_counted()
    }


@singledispatch
def record(event: object) -> None:
    """Count a telemetry event. Events without a metric are ignored."""
    metrics()  # The call loads modules of other apps, which may register this event.
    count_event = record.dispatch(type(event))
    if count_event is not record.registry[object]:
        count_event(event)


@record.register
def _(event: telemetry.JobsPublished) -> None:
    count("pulljobs_messages_published_total", event.channel, by=event.messages)
    count("pulljobs_jobs_published_total", event.channel, by=event.jobs)


@record.register
def _(event: telemetry.MessageHeldBack) -> None:
    count("pulljobs_scheduled_held_back_total", event.channel)


@record.register
def _(event: telemetry.JobsClaimed) -> None:
    _introduce(event.channel, event.consumer)
    count("pulljobs_jobs_claimed_total", event.channel, event.consumer, by=event.jobs)
    observe("pulljobs_wait_seconds", event.waits, event.channel, event.consumer)


@record.register
def _(event: telemetry.ClaimLimited) -> None:
    labels = (event.channel, event.consumer, event.reason)
    count("pulljobs_claims_limited_total", *labels)
    if event.wait_seconds:
        count("pulljobs_limit_wait_seconds_total", *labels, by=event.wait_seconds)


@record.register
def _(event: telemetry.HandlersRan) -> None:
    observe("pulljobs_run_seconds", event.seconds, event.channel, event.consumer)


@record.register
def _(event: telemetry.JobsFinished) -> None:
    for (cause, state), jobs in event.ends.items():
        _finished(event.channel, event.consumer, cause, state, by=jobs)


@record.register
def _(event: telemetry.JobsExpired) -> None:
    for state, jobs in event.states.items():
        _finished(event.channel, event.consumer, Event.EXPIRE, state, by=jobs)


@record.register
def _(event: telemetry.LeasesLost) -> None:
    count("pulljobs_leases_lost_total", event.channel, event.consumer, by=event.jobs)


@record.register
def _(event: telemetry.JobRefused) -> None:
    count("pulljobs_outcomes_refused_total", event.channel, event.consumer)


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
    count("pulljobs_push_answers_total", event.channel, event.consumer, event.answer)


@record.register
def _(event: telemetry.CircuitChanged) -> None:
    count("pulljobs_circuit_changes_total", event.channel, event.consumer, event.state)


@record.register
def _(event: telemetry.LoopFailed) -> None:
    count("pulljobs_loop_failures_total", event.loop)


@record.register
def _(event: telemetry.LeftBehind) -> None:
    count("pulljobs_jobs_left_behind_total", by=len(event.jobs))


def _finished(channel: str, consumer: str, event: str, state: str, *, by: int) -> None:
    count("pulljobs_jobs_finished_total", channel, consumer, event, state, by=by)


def _failed(channel: str, consumer: str, kind: str) -> None:
    count("pulljobs_handler_failures_total", channel, consumer, kind)


def count(name: str, *labels: str, by: float = 1) -> None:
    """Add to a counter in the series with these values of its labels."""
    metric = metrics()[name]
    (metric.labels(*labels) if labels else metric).inc(by)


def observe(name: str, amounts: Sequence[float], *labels: str) -> None:
    """Add amounts to a histogram, in the series that has `labels` as the values of its labels."""
    metrics()[name].labels(*labels).observe_all(amounts)


@cache
def _introduce(channel: str, consumer: str) -> None:
    """Start the series of a consumer at 0, because `rate` ignores the first value of a series."""
    for event, state in FROM_THE_START:
        _finished(channel, consumer, event, state, by=0)
    for kind in ("raised", "timed_out"):
        metrics()["pulljobs_handler_failures_total"].labels(channel, consumer, kind).inc(0)
    count("pulljobs_leases_lost_total", channel, consumer, by=0)
