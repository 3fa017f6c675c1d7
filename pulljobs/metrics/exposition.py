"""Contents of the page /metrics, which Prometheus scrapes."""

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
from pulljobs.metrics.families import families_counted
from pulljobs.metrics.gauges import Gauges
from pulljobs.metrics.sharing import VARIABLE

GAUGES: Final = Gauges()

_end: Callable[[], None] | None = None


def start() -> None:
    """Start to count the telemetry events of this process, if that was not started before."""
    global _end
    if _end is None:
        _end = telemetry.record_with(recorder.record)


def answer(accept: str = "", *, with_others: bool = False) -> tuple[bytes, str]:
    """Return the page and its content type, in the format that the `accept` header asks for.

    Without the setting METRICS the page has only gauges. With `with_others`, it also has the
    metrics that other code of the project keeps in the files that processes share.
    """
    registry = CollectorRegistry(auto_describe=False)
    if settings().METRICS:
        registry.register(Counted(with_others))
    registry.register(GAUGES)
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


class Counted:
    """Collector of the counters of this process, or of all processes that share their files."""

    def __init__(self, with_others: bool) -> None:
        self._with_others = with_others

    def collect(self) -> Iterator[Metric]:
        """Yield the counters and histograms of pulljobs, with `with_others` those of other code."""
        if VARIABLE not in os.environ:
            for counted in recorder.metrics().values():
                for metric in counted.collect():
                    metric.samples = [
                        sample for sample in metric.samples if not _is_creation_time(sample)
                    ]
                    yield metric
            return
        files = [
            str(file) for file in Path(os.environ[VARIABLE]).glob("*.db") if _has_content(file)
        ]
        ours = {family.name.removesuffix("_total") for family in families_counted()}
        for metric in MultiProcessCollector.merge(files):  # type: ignore[no-untyped-call]
            if self._with_others or metric.name in ours:
                yield metric


def _has_content(file: Path) -> bool:
    """Return True unless the file is still empty or was just removed.

    The collector of prometheus_client would fail to read it.
    """
    try:
        return file.stat().st_size > 0
    except FileNotFoundError:
        return False


def _is_creation_time(sample: Sample) -> bool:
    """Return True for a sample with the creation time of a series.

    It is left out, because prometheus_client does not keep it in shared files either.
    """
    return sample.name.endswith("_created")
