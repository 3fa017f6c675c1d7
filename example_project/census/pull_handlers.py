"""Handlers of the census. `runpullworker` imports this module by its name."""

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from example_project.census import plain
from example_project.census.models import Count
from pulljobs.handlers import ClaimedJob, handler

CHANNEL: Final = "python-files"
REPEATS: Final = "census-repeats"
"""Channel on which the schedule of `demo --serve` publishes."""
REPORTS: Final = "census-reports"
"""Channel on which the batch of a repeated census calls back."""
HISTORY: Final = "CENSUS_HISTORY"
"""Environment variable with the path of a file of job ids, which tests compare with rows."""

# Short for a demo: a minute of retries would not make a broken file parse.
PATIENCE: Final[dict[str, Any]] = {
    "retry_strategy": "0.2,0.5,1",
    "retry_jitter": 0.1,
    "max_retries": 3,
    "lease_duration": timedelta(seconds=5),
    "backoff": False,  # a broken file does not predict failures of the next file
}
"""Options of the handlers of files."""


@handler(channel=CHANNEL, consumer="census", transactional=True, **PATIENCE)
def census(job: ClaimedJob) -> None:
    """Count a file. The row and the end of the job are committed together, so there is one row."""
    _remember(job)
    counted = plain.count(_path(job))
    Count.objects.create(message_id=job.message_id, **counted._asdict())


@handler(channel=CHANNEL, consumer="digest", **PATIENCE)
def digest(job: ClaimedJob) -> dict[str, str]:
    """Return the SHA-256 of a file, which is stored in the archive with the job."""
    _remember(job)
    return {"sha256": plain.digest(_path(job))}


@handler(channel=REPEATS, consumer="begin", transactional=True)
def begin_again(job: ClaimedJob) -> int:
    """Begin another census as a batch, in the transaction of the job. Return its number of jobs."""
    from example_project.census import runs
    from example_project.census.files import python_files

    return runs.begin_batch(python_files(job.json()["limit"])).jobs


@handler(channel=REPORTS, consumer="report")
def report(job: ClaimedJob) -> dict[str, float]:
    """Return the sums of a repeated census, whose batch publishes this job at its end."""
    from example_project.census import summary
    from example_project.census.models import Run

    summed = summary.summarise(Run.objects.get(pk=job.json()["run"]))
    names = ("jobs", "delivered", "dead", "functions", "classes", "lines", "seconds")
    return {name: getattr(summed, name) for name in names}


def _path(job: ClaimedJob) -> Path:
    return Path(job.json()["path"])


def _remember(job: ClaimedJob) -> None:
    name = os.environ.get(HISTORY)
    if name:
        history = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(history, b"%d\n" % job.id)
        finally:
            os.close(history)
