"""Table of failures: the newest dead jobs, grouped by consumer, reason and similar error."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pulljobs import ids
from pulljobs.admin.dashboard.consumer_status import ConsumerStatus
from pulljobs.admin.links import Links
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.states import reason_words
from pulljobs.storage import dead
from pulljobs.storage.dead import Dead

READ: Final = 200
"""Largest number of dead jobs that are read for a consumer, less if many consumers have some."""
ROWS: Final = 40 * READ
"""Largest number of dead jobs that are read for all consumers together."""
SHOWN: Final = 8
SHOWN_CHARS: Final = 160
VARIES: Final = re.compile(r"0x[0-9a-f]+|[0-9][0-9,._]*|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Failure:
    """Group of dead jobs of a consumer with the same reason and similar errors.

    Their first lines differ only in numbers and quoted texts.
    """

    consumer: Consumer
    jobs: Sequence[Dead]
    """Jobs of the group, newest first."""
    links: Links

    @property
    def count(self) -> int:
        """Number of jobs in the group."""
        return len(self.jobs)

    @property
    def reason(self) -> str:
        """Reason for which the jobs are DEAD, in words."""
        return reason_words(self.jobs[0].reason)

    @property
    def text(self) -> str:
        """Beginning of the first line of the newest job's error."""
        return first_line(self.jobs[0])[:SHOWN_CHARS]

    @property
    def newest(self) -> tuple[str, str | None]:
        """Public id of the newest job, and its URL if the user may see it."""
        return ids.encode(self.jobs[0].id), self.links.job(self.jobs[0].id)


@dataclass(frozen=True)
class Failures:
    """Largest groups of dead jobs, with the numbers of other groups and of the jobs read."""

    shown: Sequence[Failure]
    more: int
    """Number of groups that are not shown."""
    read: int
    """Number of dead jobs that were read."""
    is_all: bool
    """True if all dead jobs of the consumers were read, False if there may be more."""


def read_failures(statuses: Sequence[ConsumerStatus], links: Links) -> Failures:
    """Read the newest dead jobs of the consumers and return their groups, largest first."""
    known = {row.consumer.pk: row.consumer for row in statuses if row.backlog.dead}
    wanted = max(1, min(READ, ROWS // max(1, len(known))))
    jobs = dead.newest(settings().DATABASE, list(known), wanted)
    alike: dict[tuple[int, str, str], list[Dead]] = defaultdict(list)
    for job in jobs:
        alike[job.consumer_id, job.reason, VARIES.sub("#", first_line(job))].append(job)
    failures = [Failure(known[key[0]], group, links) for key, group in alike.items()]
    failures.sort(key=lambda failure: (-failure.count, -failure.jobs[0].id))
    counts = Counter(job.consumer_id for job in jobs)
    is_all = max(counts.values(), default=0) < wanted
    return Failures(failures[:SHOWN], max(0, len(failures) - SHOWN), len(jobs), is_all)


def first_line(job: Dead) -> str:
    """Return the first line of a dead job's last error, or "" if it has none."""
    return (job.error or "").strip().partition("\n")[0]
