"""Breaks of pulljobs that `workflow-faults` has to report."""

from collections.abc import Callable
from typing import Any, Final


def commit_early() -> None:
    """Commit the effect of a step before the step is written."""
    from django.db import transaction

    from benchmarks.workflows import pull_handlers

    write = pull_handlers.write_effect

    def write_and_commit(run_id: int, part: int) -> int:
        result = write(run_id, part)
        transaction.get_connection().connection.execute("COMMIT; BEGIN")
        return result

    pull_handlers.write_effect = write_and_commit


def call_again() -> None:
    """Call the function of a step in every claim, even if its result is stored."""
    from pulljobs.workflows import runs

    module: Any = runs
    do_step = module.do_step

    def call_and_do(context: Any, name: str, function: Any, args: Any, *options: Any) -> Any:
        function(*args)
        return do_step(context, name, function, args, *options)

    module.do_step = call_and_do


def lose_wake_ups() -> None:
    """Leave runs asleep although their signals were sent."""
    from pulljobs.workflows import signals

    module: Any = signals
    module.in_transaction = lambda using: True  # Else the statement that sends it wakes the run.
    module.wake = module.wake_one = lambda *args: None
    module.sweep = lambda *args: False


BREAKS: Final[dict[str, Callable[[], None]]] = {
    "effect": commit_early,
    "steps": call_again,
    "wake": lose_wake_ups,
}
