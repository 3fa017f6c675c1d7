"""Create missing channels and consumers of the registered handlers.

With --update, existing consumers get the options that the code sets as well. Other fields do not
change.
"""

from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.db import transaction

from pulljobs import handlers, limit_groups, operating, registering
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import Handler
from pulljobs.management.output_blocks import Cell, FactsBlock, TableBlock, text_columns
from pulljobs.management.subcommands import CommandResult
from pulljobs.models import Consumer, LimitGroup


class RowUpdate(NamedTuple):
    """Consumer or limit group of the code, and the fields of its row that differed."""

    row: Consumer | LimitGroup
    changes: dict[str, tuple[Any, Any]]
    """Value of the row and value in code, by option."""

    @property
    def name(self) -> str:
        return self.row.path if isinstance(self.row, Consumer) else self.row.name


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--update", action="store_true", help="update rows whose options differ from the code"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what --update would change, and change nothing"
    )


def handle(*, update: bool, dry_run: bool, **options: Any) -> CommandResult:
    handlers.autodiscover()
    if not (update or dry_run):
        return CommandResult.from_facts(
            {"consumers": [consumer.path for consumer in handlers.sync_consumers()]}
        )
    return _result(update_consumers(dry_run=dry_run), dry_run=dry_run)


def update_consumers(*, dry_run: bool) -> list[RowUpdate]:
    """Create missing consumers of handlers, and write the options of `@handler` to all rows.

    Declared limit groups are written, too, and are first in the result, which also has rows without
    changes. Each row has a transaction of its own. With `dry_run`, nothing is written, and the
    result has what would change.
    """
    groups = [
        _update_group(name, limits, dry_run) for name, limits in limit_groups.declared().items()
    ]
    return [*groups, *(_update(handler, dry_run) for handler in handlers.registered())]


def _update_group(name: str, limits: Mapping[str, Any], dry_run: bool) -> RowUpdate:
    known = LimitGroup.objects.using(settings().DATABASE).filter(name=name).first()
    group = known or LimitGroup(name=name)
    changes = {
        limit: (current, value)
        for limit, value in limits.items()
        if (current := getattr(group, limit)) != value
    }
    if not dry_run:
        registering.put_limit_group(name, limits)
    return RowUpdate(group, changes)


def _update(handler: Handler, dry_run: bool) -> RowUpdate:
    using = settings().DATABASE
    with transaction.atomic(using=using):
        rows = Consumer.objects.using(using).select_related("channel")
        subscribed = handlers.subscribed(handler)
        consumer = rows.select_for_update(of=("self",)).get(pk=subscribed.pk)
        changes = {
            name: (current, value)
            for name, value in limit_groups.row_fields(handler.defaults).items()
            if (current := getattr(consumer, name)) != value
        }
        for name, (_current, value) in changes.items():
            setattr(consumer, name, value)
        if changes:
            _save(using, consumer)
            operating.wake(consumer)
        transaction.set_rollback(dry_run, using=using)
    return RowUpdate(consumer, changes)


def _save(using: str, consumer: Consumer) -> None:
    """Save a row. Raise ConfigurationError if its limits contradict each other."""
    try:
        consumer.save(using=using)
    except ValidationError as error:
        texts = [f"{name}: {' '.join(wrong)}" for name, wrong in error.message_dict.items()]
        raise ConfigurationError(
            f"{consumer.path}: {' '.join(texts)} The options of the code contradict others of "
            "the row: set those in @handler, too, or change the row in the admin."
        ) from error


def _show(value: Any) -> Any:
    return value.name if isinstance(value, LimitGroup) else value


def _result(updates: list[RowUpdate], *, dry_run: bool) -> CommandResult:
    consumers = [update for update in updates if isinstance(update.row, Consumer)]
    groups = [update for update in updates if isinstance(update.row, LimitGroup)]
    names = [update.name for update in consumers]
    rows: list[list[Cell]] = [
        [update.name, option, str(_show(was)), str(_show(new))]
        for update in updates
        for option, (was, new) in update.changes.items()
    ]
    columns = text_columns("row", "option", "was", "would be" if dry_run else "is")
    return CommandResult(
        {
            "consumers": names,
            "dry_run": dry_run,
            "changes": _list_changes(consumers, "consumer"),
            "limit_groups": _list_changes(groups, "limit_group"),
        },
        [
            FactsBlock([("consumers", ", ".join(names) or "none")]),
            TableBlock(columns, rows, "All rows match the code."),
        ],
    )


def _list_changes(updates: list[RowUpdate], kind: str) -> list[dict[str, Any]]:
    """Return the changes for programs, with the name of each row under the key `kind`."""
    return [
        {kind: update.name, "option": option, "was": _show(was), "is": _show(new)}
        for update in updates
        for option, (was, new) in update.changes.items()
    ]
