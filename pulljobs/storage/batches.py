"""Batches whose members changed, passed on to the app that looks at them."""

from collections.abc import Iterable
from functools import partial

from django.db import transaction

from pulljobs import hooks


def announce(using: str, batch_ids: Iterable[int | None]) -> None:
    """Call `hooks.batch_listeners` with the batches after the commit. None is no batch.

    If the process dies before, a sweep finds the batches by their sums.
    """
    if changed := frozenset(batch_ids) - {None}:
        for listener in hooks.batch_listeners:
            transaction.on_commit(
                partial(hooks.load(listener), using, changed), using=using, robust=True
            )
