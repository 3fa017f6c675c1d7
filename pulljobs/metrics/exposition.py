"""What /metrics answers."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

from pulljobs.conf import settings
from pulljobs.engine import telemetry
from pulljobs.metrics import recorder
from pulljobs.metrics.families import COUNTED
from pulljobs.metrics.gauges import Gauges
from pulljobs.metrics.sharing import VARIABLE

GAUGES: Final = Gauges()
OURS: Final = frozenset(family.name.removesuffix("_total") for family in COUNTED)

_end: Callable[[], None] | None = None


def start() -> None:
    """Count from now on, in this process."""
    global _end
    if _end is None:
        _end = telemetry.record_with(recorder.record)


def answer(accept: str = "", *, with_others: bool = False) -> tuple[bytes, str]:
    """The body and its content type; with what the project's own code counts beside us, or not."""
    registry = CollectorRegistry(auto_describe=False)
    if settings().METRICS:
        registry.register(Counted(with_others))
    registry.register(GAUGES)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class Counted:
    """What this process counted, or all that share a directory with it."""

    def __init__(self, with_others: bool) -> None:
        self._with_others = with_others

    def collect(self) -> Iterator[Metric]:
        if VARIABLE not in os.environ:
            for counted in recorder.metrics().values():
                for metric in counted.collect():
                    metric.samples = [one for one in metric.samples if not _is_of_its_making(one)]
                    yield metric
            return
        files = [str(file) for file in Path(os.environ[VARIABLE]).glob("*.db") if _has_begun(file)]
        for metric in MultiProcessCollector.merge(files):  # type: ignore[no-untyped-call]
            if self._with_others or metric.name in OURS:
                yield metric


def _has_begun(file: Path) -> bool:
    """For a moment a new one is empty, which the collector can't read; others go with a process."""
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


def _is_of_its_making(sample: Sample) -> bool:
    """When a series was begun, which processes that share a directory don't tell either."""
    return sample.name.endswith("_created")
