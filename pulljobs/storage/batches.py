"""Notification to the app `pulljobs.workflows` about batches whose members changed."""

from collections.abc import Iterable
from functools import partial

from pulljobs import hooks
from pulljobs.storage.transactions import call_on_commit


def announce(using: str, batch_ids: Iterable[int | None]) -> None:
    """Call each of `hooks.batch_listeners` after the commit with the ids of changed batches.

    None, the batch of a job without batch, is left out. If the process crashes before the call, a
    periodic query of `pulljobs.workflows` finds the batches by their counts of members.
    """
    if changed := frozenset(batch_ids) - {None}:
        for listener in hooks.batch_listeners:
            call_on_commit(using, partial(hooks.load(listener), using, changed))
