"""Batches: sets of jobs that call back once when all of them have ended.

    from pulljobs import batches

    with batches.batch("invoices", on_complete=("reports", {"kind": "invoices"})) as b:
        b.publish_many("invoices", ({"order": number} for number in orders))

The app `pulljobs.workflows` must be installed.
"""

from typing import TYPE_CHECKING, Any

from pulljobs.workflows.batches.acting import cancel, redrive
from pulljobs.workflows.batches.adding import (
    OpenBatch,
    abatch,
    acreate,
    batch,
    create,
    extend,
    find_batch,
)
from pulljobs.workflows.batches.callbacks import Callback
from pulljobs.workflows.batches.reading import (
    BatchView,
    DeadMember,
    MemberResult,
    aget,
    get,
    results,
    wait,
)

if TYPE_CHECKING:
    from pulljobs.workflows.batches.tasks import call_task, enqueue

__all__ = [
    "BatchView",
    "Callback",
    "DeadMember",
    "MemberResult",
    "OpenBatch",
    "abatch",
    "acreate",
    "aget",
    "batch",
    "call_task",
    "cancel",
    "create",
    "enqueue",
    "extend",
    "find_batch",
    "get",
    "redrive",
    "results",
    "wait",
]


def __getattr__(name: str) -> Any:
    """Import `call_task` and `enqueue` on their first use, because they need django.tasks."""
    if name not in ("call_task", "enqueue"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pulljobs.workflows.batches import tasks

    return getattr(tasks, name)
