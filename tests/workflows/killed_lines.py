"""Program in a project that a user wrote from the guide on workflows.

For each line of the workflow it places an order, and SIGKILL ends the process of its run once,
before that line. It prints the killed lines, and the orders with their bookings and results.
"""

import json
import os
import signal
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import django
from django.db import connections
from django.db.models.functions import Now

FOLDER: Final = Path("killed")
LAST: Final = 0
"""Order whose process dies after the last line."""
MOST_CLAIMS: Final = 20


def main() -> None:
    django.setup()
    code = import_module("fulfilment.pull_handlers").fulfil.__code__
    FOLDER.mkdir()
    lines = sorted({line for *_span, line in code.co_lines() if line} - {code.co_firstlineno})
    orders = [LAST, *lines]
    results = {order: run_order(order, code) for order in orders}
    from django.contrib.auth.models import Group

    booked = {order: list(Group.objects.filter(name__startswith=f"{order}: ")) for order in orders}
    report = {
        "lines": lines,
        "killed": sorted(int(mark.name) for mark in FOLDER.iterdir()),
        "booked": {order: [group.pk for group in groups] for order, groups in booked.items()},
        "results": results,
    }
    print(json.dumps(report))


def run_order(order: int, code: CodeType) -> Any:
    """Place and approve an order, and work until its run has ended. Return its result."""
    from pulljobs import jobs

    ordering = import_module("fulfilment.ordering")
    run_id = ordering.place(order)
    ordering.approve(run_id, "olga")
    for _claim in range(MOST_CLAIMS):
        work(code)
        view = jobs.get(run_id)
        if view.state in ("DELIVERED", "DEAD"):
            return view.result
        let_time_pass()
    raise AssertionError(f"The run of order {order} has not ended: {view}")


def work(code: CodeType) -> None:
    """Run the jobs that are ready in a forked process, which may be killed."""
    connections.close_all()
    if process := os.fork():
        os.waitpid(process, 0)
        return
    try:
        from pulljobs.testing import drain

        sys.settrace(lambda frame, event, arg: kill_at_line if frame.f_code is code else None)
        drain("orders")
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def kill_at_line(frame: FrameType, event: str, result: Any) -> Any:
    """Kill this process once, before the line with the number of the order, or after `LAST`."""
    order = frame.f_locals["run"].input["order"]
    is_due = frame.f_lineno == order if event == "line" else event == "return" and result
    if is_due and (event == "line" or order == LAST) and not (FOLDER / str(order)).exists():
        (FOLDER / str(order)).touch()
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    return kill_at_line


def let_time_pass() -> None:
    """End the lease of a process that died, the sleep of a run, and the pause before a retry."""
    from pulljobs import pulling
    from pulljobs.models import Job, Lease
    from pulljobs.workflows.models import WorkflowStep

    Lease.objects.update(leased_until="2026-01-01T00:00:00Z")
    pulling.reap()
    WorkflowStep.objects.filter(kind="sleep", ended_at=None).update(due_at=Now())
    Job.objects.filter(state="QUEUED").update(available_at=Now())


if __name__ == "__main__":
    main()
