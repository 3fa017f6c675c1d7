"""Metrics for Prometheus: counters of events, and gauges that are read at each scrape.

`families` lists them all. `python -m pulljobs.metrics` prints a Grafana dashboard and alert rules.
"""

from importlib.util import find_spec


def is_installed() -> bool:
    """Return True if the extra `metrics` (prometheus_client) is installed.

    Without it `exposition`, `gauges` and `recorder` can't be imported.
    """
    return find_spec("prometheus_client") is not None
