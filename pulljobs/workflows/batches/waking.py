"""Making due a run of a workflow that waits for a batch."""

from pulljobs.storage import jobs, listen
from pulljobs.storage.statements import run


def wake_run(using: str, run_id: int) -> None:
    """Make a suspended run due, in the transaction that decides its batch.

    A run that is about to suspend writes its job first, and looks at the batch afterwards. So the
    job is locked in any state: either the run is QUEUED already and becomes due, or it waits for
    this transaction and then finds the batch complete.
    """
    run(using, "lock_run", {"run_id": run_id})
    listen.wake_on_commit(using, jobs.reschedule(using, [run_id], at=None).values())
