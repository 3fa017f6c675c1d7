"""What the newest dead jobs say, the same errors together."""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pulljobs import ids
from pulljobs.admin.dashboard.consumers import Standing
from pulljobs.admin.dashboard.links import Links
from pulljobs.conf import settings
from pulljobs.models import Consumer
from pulljobs.storage import dead
from pulljobs.storage.dead import Dead

READ: Final = 200
"""Dead jobs of a consumer, less where many have some."""
ROWS: Final = 40 * READ
"""Of all consumers together."""
SHOWN: Final = 8
SHOWN_CHARS: Final = 160
VARIES: Final = re.compile(r"0x[0-9a-f]+|[0-9][0-9,._]*|'[^']*'|\"[^\"]*\"")


@dataclass(frozen=True)
class Failure:
    """Dead jobs of one consumer that died of the same, but for numbers and quoted names."""

    consumer: Consumer
    jobs: Sequence[Dead]
    links: Links

    @property
    def count(self) -> int:
        return len(self.jobs)

    @property
    def reason(self) -> str:
        return self.jobs[0].reason.replace("_", " ")

    @property
    def text(self) -> str:
        return first_line(self.jobs[0])[:SHOWN_CHARS]

    @property
    def newest(self) -> tuple[str, str | None]:
        return ids.encode(self.jobs[0].id), self.links.job(self.jobs[0].id)


@dataclass(frozen=True)
class Failures:
    shown: Sequence[Failure]
    more: int
    """Kinds of errors that are not shown."""
    read: int
    is_all: bool
    """No consumer has more dead jobs than were read."""


def read(standings: Sequence[Standing], links: Links) -> Failures:
    known = {one.consumer.pk: one.consumer for one in standings if one.backlog.dead}
    wanted = max(1, min(READ, ROWS // max(1, len(known))))
    found = dead.newest(settings().DATABASE, list(known), wanted)
    alike: dict[tuple[int, str, str], list[Dead]] = defaultdict(list)
    for one in found:
        alike[one.consumer_id, one.reason, VARIES.sub("#", first_line(one))].append(one)
    failures = [Failure(known[key[0]], jobs, links) for key, jobs in alike.items()]
    failures.sort(key=lambda one: (-one.count, -one.jobs[0].id))
    counts = Counter(one.consumer_id for one in found)
    is_all = max(counts.values(), default=0) < wanted
    return Failures(failures[:SHOWN], max(0, len(failures) - SHOWN), len(found), is_all)


def first_line(job: Dead) -> str:
    return (job.error or "").strip().partition("\n")[0]
