"""Settings of the benchmarks with the app of schedules."""

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import INSTALLED_APPS as BENCHMARK_APPS

INSTALLED_APPS = [*BENCHMARK_APPS, "pulljobs.schedules"]
