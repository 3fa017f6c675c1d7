"""App of the workers of `schedule-faults`."""

import os

from django.apps import AppConfig


class BenchmarkedSchedulesConfig(AppConfig):
    """App whose start makes the process follow the clock that the director moves."""

    name = "benchmarks.schedules"
    label = "benchmarked_schedules"

    def ready(self) -> None:
        """Make the process follow the clock before anything reads the time."""
        from benchmarks.faults.roles import clock

        clock.follow(os.environ.get("FAULTS_CLOCK", ""))
