"""Settings of the processes that `schedule-faults` starts, for the server of the director."""

from datetime import timedelta

from benchmarks.faults.settings import *  # noqa: F403
from benchmarks.schedules.settings import INSTALLED_APPS as SCHEDULE_APPS

INSTALLED_APPS = [*SCHEDULE_APPS, "benchmarks.schedules"]
PULLJOBS = {"REAP_INTERVAL": timedelta(seconds=2), "HEARTBEAT_INTERVAL": timedelta(seconds=2)}
