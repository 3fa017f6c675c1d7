"""Numbers for Prometheus: what happened, counted, and how things stand, read when it is asked.

`families` says which there are; `python -m pulljobs.metrics` prints a dashboard and alerts of them.
"""

from importlib.util import find_spec


def is_installed() -> bool:
    """Whether the extra is; without it only this module and `families` can be imported."""
    return find_spec("prometheus_client") is not None
