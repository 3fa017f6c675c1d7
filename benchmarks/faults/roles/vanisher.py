"""Process that is killed in the middle of a transaction.

    python -m benchmarks.faults.roles.vanisher FILE

It delivers a job, locks another and publishes, all in one transaction, writes the ids of the
claimed and locked jobs to FILE and waits.
"""

import json
import sys
import time
from pathlib import Path
from typing import Final

import django

django.setup()

from django.db import connection, transaction  # noqa: E402  Django first

from pulljobs import publishing, pulling  # noqa: E402
from pulljobs.engine import outcomes  # noqa: E402
from pulljobs.engine.outcomes import Held  # noqa: E402
from pulljobs.models import Consumer  # noqa: E402
from pulljobs.pulling import Puller  # noqa: E402

LOCKED: Final = (
    "SELECT id FROM pulljobs_job WHERE state = 'QUEUED' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
)
PAUSE: Final = 0.02
FOR_EVER: Final = 3600.0


def main(announced: Path) -> None:
    """Lock jobs in an open transaction, announce their ids and wait to be killed."""
    held = _claim()
    with transaction.atomic(), connection.cursor() as cursor:
        pulling.finish([outcomes.deliver(held[0])])
        cursor.execute(LOCKED)
        queued = [row[0] for row in cursor.fetchall()]
        publishing.publish_many("faults", [{"seconds": 0.1, "end": "well"}])
        _write(announced, [*queued, *(job.job_id for job in held)])
        time.sleep(FOR_EVER)


def _claim() -> list[Held]:
    """Claim up to two jobs, and repeat until at least one was claimed."""
    puller = Puller("default", Consumer.objects.get(name="worked"))
    while True:
        claim = puller.claim(2)
        if claim.taken is not None and claim.jobs:
            token = claim.taken.lease_token
            return [Held(job.id, token) for job, _message in claim.jobs]
        time.sleep(PAUSE)


def _write(file: Path, job_ids: list[int]) -> None:
    """Write the ids in one step, so that a reader never sees a part of them."""
    temporary = file.with_suffix(".new")
    temporary.write_text(json.dumps(job_ids))
    temporary.rename(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
