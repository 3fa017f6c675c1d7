from django.apps import AppConfig


class FaultsConfig(AppConfig):
    name = "benchmarks.faults"

    def ready(self) -> None:
        """Before any verb is called: what breaks it first, so that the witness sees it broken."""
        from benchmarks.faults.roles import breaks, clock, surroundings, witness

        if surroundings.HISTORY is not None:
            clock.follow(surroundings.CLOCK)
            breaks.install(surroundings.BREAK)
            witness.install(surroundings.pen())
