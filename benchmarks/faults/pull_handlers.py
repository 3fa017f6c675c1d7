"""Handler of the workers; the payload decides how long it runs and how it ends."""

import time

from benchmarks.faults.history import ENDED, STARTED, Entry
from benchmarks.faults.roles.environment import history_writer
from pulljobs.errors import Discard
from pulljobs.handlers import ClaimedJob, handler


@handler(channel="faults", consumer="worked")
def worked(job: ClaimedJob) -> None:
    """Sleep, and end as the payload says."""
    script = job.json()
    _note(STARTED, job)
    time.sleep(script["seconds"])
    _note(ENDED, job)
    if script["end"] == "fail" and not job.retry_count:
        raise ValueError("failure asked for by the payload")
    if script["end"] == "discard":
        raise Discard("discard asked for by the payload")


def _note(event: str, job: ClaimedJob) -> None:
    history_writer().write(event, [Entry(job.id, job.held.lease_token)])
