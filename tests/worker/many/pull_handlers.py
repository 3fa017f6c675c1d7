"""Handlers of many consumers, as in a large project."""

from typing import Final

from pulljobs.handlers import ClaimedJob, handler
from tests.worker.history import note

MANY: Final = 200


def done(job: ClaimedJob) -> None:
    note("ended", job.id)


for number in range(MANY):
    handler(channel=f"many-{number}", consumer="plain")(done)
