"""Schedules that a project declares in code, and the creation of their rows.

    # invoices/pull_handlers.py
    @every(cron="0 6 * * 1-5", timezone="Europe/Berlin")
    @handler(channel="invoices", consumer="sending")
    def send_invoices(job: ClaimedJob) -> None: ...

A worker creates the row when it starts. From then on the row counts, which users can change, and
only `pulljobs schedules sync --update` resets its options to those in code.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeVar

from django.core.exceptions import ValidationError
from django.db import transaction

from pulljobs import handlers
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError, InvalidSchedule, PulljobsError, ScheduleExists
from pulljobs.handlers import Handler
from pulljobs.models import AuditEntry, Channel
from pulljobs.models.token_holders import validate_name
from pulljobs.publishing import Payload
from pulljobs.schedules import acting, editing
from pulljobs.schedules.definitions import Definition
from pulljobs.schedules.models import Schedule

logger = logging.getLogger("pulljobs")

F = TypeVar("F", bound=Callable[..., Any])

BEGINNING: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Time after which a declared rule must have a slot: one whose slots are all past is no error."""
_declared: Final[dict[str, Definition]] = {}
_refused: list[tuple[str, PulljobsError]] | None = None
"""Refused declarations with their errors, while a system check collects them, else None."""


class ScheduleUpdate(NamedTuple):
    """Result of `sync` for one declared schedule: what it created or changed."""

    name: str
    is_created: bool
    changes: dict[str, tuple[Any, Any]]
    """Value of the row and value in code, by option."""


def declare(name: str, channel: str, payload: Payload = None, **options: Any) -> None:
    """Declare a schedule in code, with the arguments of `create` except `paused_until`.

    Workers create a missing row when they start: `sync` updates one. Raise InvalidSchedule, or what
    `publish` raises, for a definition that can't work, and ConfigurationError for a used name.
    """
    try:
        _declare({"name": name, "channel": channel, "payload": payload, **options})
    except PulljobsError as error:
        if _refused is None:
            raise
        _refused.append((name, error))


def _declare(options: Mapping[str, Any]) -> None:
    definition = Definition.make(options)
    definition.columns(definition.make_rule(BEGINNING))
    _check_channel(definition.channel)
    if _declared.get(definition.name, definition) != definition:
        raise ConfigurationError(
            f"Two schedules are called {definition.name!r}: rename one of them."
        )
    _declared[definition.name] = definition


def _check_channel(name: object) -> None:
    """Raise InvalidSchedule unless a channel may have this name."""
    if not isinstance(name, str):
        raise InvalidSchedule("channel", f"channel must be its name, as text, not {name!r}.")
    try:
        validate_name(name)
    except ValidationError as error:
        raise InvalidSchedule("channel", f"channel is {name!r}: {error.message}") from error


def every(name: str | None = None, payload: Payload = None, **options: Any) -> Callable[[F], F]:
    """Declare a schedule on the channel of the `@handler` or `@workflow` below this decorator.

    `name` is `channel-consumer` by default. The options are those of `declare`, such as `cron`.
    """
    if callable(name):
        raise ConfigurationError(
            f"@every is above {name!r} without a rule: write @every(cron=...)."
        )

    def register(function: F) -> F:
        own = [each for each in handlers.registered() if _is_of(each, function)]
        if not own:
            raise ConfigurationError(
                f"@every is above {function!r}: put @handler or @workflow below it."
            )
        channel, consumer = own[-1].names
        declare(name or f"{channel}-{consumer}", channel, payload, **options)
        return function

    return register


def _is_of(handler: Handler, function: Callable[..., Any]) -> bool:
    """Return True if `@handler` or `@workflow` made this handler from the function."""
    wrapped = getattr(handler.function, "__wrapped__", None)
    return function is (wrapped if handler.is_fenced else handler.function)


@contextmanager
def collecting_errors() -> Iterator[list[tuple[str, PulljobsError]]]:
    """Make `declare` collect its errors in the yielded list of (name, error), for a system check.

    Modules that were imported before add nothing: their declarations raised at that time.
    """
    global _refused
    refused: list[tuple[str, PulljobsError]] = []
    _refused = refused
    try:
        yield refused
    finally:
        _refused = None


def declared() -> dict[str, Definition]:
    """Return the schedules that were declared in this process, by name."""
    return dict(_declared)


def sync(
    *, update: bool = False, dry_run: bool = False, by: str | None = None
) -> list[ScheduleUpdate]:
    """Create the rows of declared schedules that are missing, and their channels.

    With `update`, existing rows get the options of their declarations. With `dry_run`, nothing is
    written, and the result has what `update` would do. Each schedule has a transaction of its own.
    `by` is the operator for the audit trail, or None if a worker starts, which writes no entry.
    """
    using = settings().DATABASE
    rows = Schedule.objects.using(using).filter(name__in=_declared)
    known = set(rows.values_list("name", flat=True))
    return [
        _sync(using, definition, dry_run=dry_run, by=by)
        for name, definition in sorted(_declared.items())
        if update or dry_run or name not in known
    ]


def undeclared() -> list[str]:
    """Return the sorted names of schedules whose declaration has been removed from the code."""
    rows = Schedule.objects.using(settings().DATABASE).filter(is_declared=True)
    return sorted(rows.exclude(name__in=_declared).values_list("name", flat=True))


def _sync(using: str, definition: Definition, *, dry_run: bool, by: str | None) -> ScheduleUpdate:
    with transaction.atomic(using=using):
        Channel.objects.using(using).get_or_create(name=definition.channel)
        row = Schedule.objects.using(using).filter(name=definition.name).first()
        changes = {} if row is None else _differences(Definition.from_row(row), definition)
        is_written = _write(definition, row, changes)
        if by is not None and is_written and row is None:
            acting.note(AuditEntry.Act.CREATE, definition.name, by=by)
        elif by is not None and is_written and changes:
            acting.note_update(definition.name, changes, by=by)
        transaction.set_rollback(dry_run, using=using)
    return ScheduleUpdate(
        definition.name, is_written and row is None, changes if is_written else {}
    )


def _write(
    definition: Definition, row: Schedule | None, changes: Mapping[str, tuple[Any, Any]]
) -> bool:
    """Create or change the row if needed, and return True. If refused, log why and return False."""
    name, new = definition.name, {option: value for option, (_old, value) in changes.items()}
    if "payload" in new:  # The payload is bytes here, whose default type would replace this one.
        new["content_type"] = definition._message().content_type
    try:
        if row is None:
            editing.add(definition, is_declared=True)
        elif changes:
            editing.update(name, **new)
    except ScheduleExists:
        logger.debug("Another process has created schedule %s.", name)
    except InvalidSchedule as error:
        verb = "created" if row is None else "updated"
        logger.warning("Schedule %s is declared, but not %s: %s", name, verb, error)
    else:
        return True
    return False


def _differences(current: Definition, wanted: Definition) -> dict[str, tuple[Any, Any]]:
    """Return differing options as (current, wanted) by name, except a default `starts_at`."""
    message = wanted._message()
    stored = {name: getattr(message, name) for name in ("payload", "content_type", "headers")}
    options = {each.name: getattr(wanted, each.name) for each in fields(Definition)} | stored
    if wanted.every is not None and wanted.starts_at is None:
        options["starts_at"] = current.starts_at
    return {
        name: (getattr(current, name), value)
        for name, value in options.items()
        if getattr(current, name) != value
    }
