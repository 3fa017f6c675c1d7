"""App of the processes under test."""

from django.apps import AppConfig


class FaultsConfig(AppConfig):
    """App that records claims and settlements of the process, if a director started it."""

    name = "benchmarks.faults"

    def ready(self) -> None:
        """Follow the moved clock, break pulljobs as planned, and record claims and settlements."""
        from benchmarks.faults.roles import breaks, clock, environment, witness

        if environment.HISTORY is not None:
            clock.follow(environment.CLOCK)
            breaks.install(environment.BREAK)
            witness.install(environment.history_writer())
