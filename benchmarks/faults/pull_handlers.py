"""What the workers run: as long as the payload says, and with that end."""

import time

from benchmarks.faults.history import ENDED, STARTED, Entry
from benchmarks.faults.roles.surroundings import pen
from pulljobs.errors import Discard
from pulljobs.handlers import ClaimedJob, handler


@handler(channel="faults", consumer="worked")
def worked(job: ClaimedJob) -> None:
    script = job.json()
    _note(STARTED, job)
    time.sleep(script["seconds"])
    _note(ENDED, job)
    if script["end"] == "fail" and not job.retry_count:
        raise ValueError("as it was told")
    if script["end"] == "discard":
        raise Discard("as it was told")


def _note(event: str, job: ClaimedJob) -> None:
    pen().write(event, [Entry(job.id, job.held.lease_token)])
