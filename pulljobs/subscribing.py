"""Consumers as code has them: the options that handlers name, given to rows that are there."""

from typing import Any, NamedTuple

from django.db import transaction

from pulljobs import handlers, operating
from pulljobs.conf import settings
from pulljobs.handlers import Handler
from pulljobs.models import Consumer


class Updated(NamedTuple):
    consumer: Consumer
    changes: dict[str, tuple[Any, Any]]
    """Of the options that differed: what the row had, and what code names."""


def update(*, dry_run: bool = False) -> list[Updated]:
    """Make the rows that lack, and give all of them the options that their handlers name.

    Whatever code does not name stays as people have it. With `dry_run` nothing is written.
    """
    return [_updated(one, dry_run) for one in handlers.registered()]


def _updated(one: Handler, dry_run: bool) -> Updated:
    using = settings().DATABASE
    with transaction.atomic(using=using):
        rows = Consumer.objects.using(using).select_related("channel")
        consumer = rows.select_for_update(of=("self",)).get(pk=handlers.subscribed(one).pk)
        changes = {
            name: (had, value)
            for name, value in one.defaults.items()
            if (had := getattr(consumer, name)) != value
        }
        for name, (_had, value) in changes.items():
            setattr(consumer, name, value)
        if changes:
            consumer.save(using=using)
            operating.wake(consumer)
        transaction.set_rollback(dry_run, using=using)
    return Updated(consumer, changes)
