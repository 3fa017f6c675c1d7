"""Batches whose members changed, passed on to the app that looks at them."""

from collections.abc import Iterable
from functools import partial

from pulljobs import hooks
from pulljobs.storage.statements import call_on_commit


def announce(using: str, batch_ids: Iterable[int | None]) -> None:
    """Call `hooks.batch_listeners` with the batches after the commit. None is no batch.

    If the process dies before, a sweep finds the batches by their sums.
    """
    if changed := frozenset(batch_ids) - {None}:
        for listener in hooks.batch_listeners:
            call_on_commit(using, partial(hooks.load(listener), using, changed))
