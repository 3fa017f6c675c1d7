"""Gauges read from the database, at a cost that does not grow with the archive or the backlog."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from django.db import DatabaseError, InterfaceError, connections
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from pulljobs.conf import settings
from pulljobs.metrics import gauge_samples
from pulljobs.metrics.families import Sample, families_read
from pulljobs.storage.reading import impatient

FRESH: Final = 5.0
"""Seconds for which a reading is used again."""
PATIENCE: Final = timedelta(seconds=1)
"""Time limit of one statement."""
WAIT: Final = 3.0
"""Seconds that an answer waits for all gauges, since the counters wait with it."""
KEPT: Final = 90.0
"""Seconds for which the last reading stands in for late gauges: above a scrape interval."""


class Gauges:
    """Collector of the gauges, which all threads of a process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reading: GaugeReading | None = None
        self._last: GaugeReading | None = None

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges. Read them again if the last reading ended over `FRESH` seconds ago."""
        families = {
            family.name: GaugeMetricFamily(family.name, family.meaning, labels=family.labels)
            for family in families_read()
        }
        for name, labels, value in self._current():
            families[name].add_metric(labels, value)
        yield from families.values()

    def forget(self) -> None:
        """Discard the last reading, so that the next call of `collect` reads again."""
        self._reading = None

    def _current(self) -> Sequence[Sample]:
        with self._lock:
            if self._reading is None or self._reading.is_old():
                self._last, self._reading = self._reading, GaugeReading()
                self._reading.start()
            reading, last = self._reading, self._last
        reading.join(WAIT)
        return reading.samples(last)


class GaugeReading(threading.Thread):
    """Thread that reads all gauges once. A database that does not answer may block it for long."""

    def __init__(self) -> None:
        super().__init__(name="gauges", daemon=True)
        self._parts: dict[str, list[Sample]] = {}
        self._began = time.monotonic()
        self._ended: float | None = None

    def run(self) -> None:
        """Read all parts of the gauges, then close the thread's connections."""
        try:
            self.read_parts()
        finally:
            connections.close_all()

    def read_parts(self) -> None:
        """Read the parts of the gauges one after the other, in the calling thread."""
        try:
            for name, samples in _parts():
                self._parts[name] = samples
        finally:
            self._ended = time.monotonic()

    def is_old(self) -> bool:
        """Return True if the reading ended more than `FRESH` seconds ago."""
        return not self.is_alive() and not self.ended_within(FRESH)

    def ended_within(self, seconds: float) -> bool:
        """Return True if the reading ended at most so many seconds ago."""
        return self._ended is not None and time.monotonic() - self._ended <= seconds

    def samples(self, last: "GaugeReading | None" = None) -> list[Sample]:
        """Return the samples read so far, with `pulljobs_read_ok` of each part.

        While this reading goes on, parts that it has not read yet come from the `last` reading,
        unless that is too old, and count as read. Otherwise a part that is always late would never
        be on the page.
        """
        is_running = self._ended is None
        parts = dict(self._parts)
        if is_running and last and last.ended_within(KEPT):
            parts = last._parts | parts
        read = [sample for samples in parts.values() for sample in samples]
        names = gauge_samples.find_parts()
        read += [("pulljobs_read_ok", (name,), name in parts) for name in names]
        seconds = (self._ended or time.monotonic()) - self._began
        return [*read, ("pulljobs_read_seconds", (), seconds)]


def _parts() -> Iterator[tuple[str, list[Sample]]]:
    """Yield name and samples of each part of the gauges whose statements succeed in time."""
    using = settings().DATABASE
    try:
        with impatient(using, PATIENCE) as reading:
            for name, read in gauge_samples.find_parts().items():
                samples = reading.part(name, partial(_samples, read, using), None)
                if samples is not None:
                    yield name, samples
    except (DatabaseError, InterfaceError):
        return


def _samples(read: Callable[[str], Iterator[Sample]], using: str) -> list[Sample]:
    return list(read(using))
