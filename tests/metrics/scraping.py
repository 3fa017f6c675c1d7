"""Samples that Prometheus would store of a scrape."""

import re
import urllib.request
from collections import defaultdict
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from tests.api.leases.processes import STARTING_SECONDS
from tests.sessions import wait_until
from tests.worker.processes import Stage, Worker

Labels = tuple[tuple[str, str], ...]
Samples = Mapping[tuple[str, Labels], float]


def counting(stage: Stage, *flags: str) -> Worker:
    """Start a worker that counts metrics and serves them at /metrics."""
    return stage.worker("--health-port", "0", *flags, WORKER_PULLJOBS='{"METRICS": true}')


def scrape(worker: Worker) -> Samples:
    wait_until(lambda: "/livez and" in worker.log, STARTING_SECONDS)
    address = re.search(r"(http://[\d.:]+)/livez", worker.log)
    assert address, worker.log
    with urllib.request.urlopen(f"{address[1]}/metrics", timeout=STARTING_SECONDS) as answer:
        return parsed(answer.read().decode())


def parsed(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def by(samples: Samples, name: str, *labels: str) -> dict[tuple[str, ...], float]:
    """Return the sums of the samples of a name by the values of these labels, without sums of 0."""
    sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
    for (family, pairs), value in samples.items():
        if family == name:
            known = dict(pairs)
            sums[tuple(known[label] for label in labels)] += value
    return {key: value for key, value in sums.items() if value}
