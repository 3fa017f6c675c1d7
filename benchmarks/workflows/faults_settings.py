"""Settings of the processes that `workflow-faults` starts, for the server of the director."""

from datetime import timedelta

from benchmarks.faults.settings import *  # noqa: F403
from benchmarks.settings import INSTALLED_APPS as BENCHMARK_APPS

INSTALLED_APPS = [
    *(app for app in BENCHMARK_APPS if app != "benchmarks.noop"),
    "pulljobs.workflows",
    "benchmarks.workflows",
]
PULLJOBS = {"REAP_INTERVAL": timedelta(seconds=0.5), "HEARTBEAT_INTERVAL": timedelta(seconds=1)}
