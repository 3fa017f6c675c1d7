"""The benchmarks' settings with a retention, so that the worker's own upkeep drops history, too."""

from datetime import timedelta

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import PULLJOBS

PULLJOBS = {"RETENTION": timedelta(days=2), **PULLJOBS}
