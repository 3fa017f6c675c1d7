"""Settings with a retention, so that the upkeep of the worker drops history."""

from datetime import timedelta

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import PULLJOBS

PULLJOBS = {"RETENTION": timedelta(days=2), **PULLJOBS}
