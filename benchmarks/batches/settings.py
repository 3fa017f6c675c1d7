"""Settings of the processes that `batch-faults` starts, for the PostgreSQL server it runs."""

from datetime import timedelta

from benchmarks.faults.settings import *  # noqa: F403
from benchmarks.faults.settings import INSTALLED_APPS as FAULT_APPS

INSTALLED_APPS = [
    *(app for app in FAULT_APPS if app != "benchmarks.faults"),
    "pulljobs.workflows",
    "benchmarks.batches",
]
PULLJOBS = {"REAP_INTERVAL": timedelta(seconds=1), "HEARTBEAT_INTERVAL": timedelta(seconds=1)}
