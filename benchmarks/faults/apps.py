"""App of the processes under test."""

from django.apps import AppConfig


class FaultsConfig(AppConfig):
    """App whose start wraps the storage verbs if a director started the process."""

    name = "benchmarks.faults"

    def ready(self) -> None:
        """Wrap the storage verbs: first the breaks, then the witness, which sees their effects."""
        from benchmarks.faults.roles import breaks, clock, environment, witness

        if environment.HISTORY is not None:
            clock.follow(environment.CLOCK)
            breaks.install(environment.BREAK)
            witness.install(environment.history_writer())
