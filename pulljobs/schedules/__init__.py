"""Schedules: rules by which messages are published again and again, with a record of each slot.

    from pulljobs import schedules

    schedules.create("invoices", "invoices", {"kind": "all"}, cron="0 6 * * 1-5",
                     timezone="Europe/Berlin")

A slot is a planned time of a schedule: it fires, which publishes the message, or is skipped.
Functions that write join the caller's transaction, or make one. A scheduled message
(`pulljobs.scheduling`) is something else: one message that is published once, at a later time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pulljobs.schedules.backfilling import backfill, fire_now
    from pulljobs.schedules.declaring import declare, every, sync
    from pulljobs.schedules.editing import create, delete, pause, resume, update
    from pulljobs.schedules.reading import slot_of
    from pulljobs.schedules.tasks import create_for_task, declare_for_task

_MODULES = {
    "backfill": "backfilling",
    "create": "editing",
    "create_for_task": "tasks",
    "declare": "declaring",
    "declare_for_task": "tasks",
    "delete": "editing",
    "every": "declaring",
    "fire_now": "backfilling",
    "pause": "editing",
    "resume": "editing",
    "slot_of": "reading",
    "sync": "declaring",
    "update": "editing",
}

__all__ = [
    "backfill",
    "create",
    "create_for_task",
    "declare",
    "declare_for_task",
    "delete",
    "every",
    "fire_now",
    "pause",
    "resume",
    "slot_of",
    "sync",
    "update",
]


def __getattr__(name: str) -> Any:
    """Import a public function on its first use: Django imports this package before its models."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
