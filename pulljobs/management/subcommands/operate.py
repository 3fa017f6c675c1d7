"""Go on with what operators asked to be done to many jobs, as every worker does."""

from typing import Any, Final

from pulljobs import auditing
from pulljobs.conf import settings
from pulljobs.management.subcommands import Answer
from pulljobs.models import AuditEntry

SECONDS: Final = 60.0


def handle(**options: Any) -> Answer:
    unfinished = AuditEntry.objects.using(settings().DATABASE).filter(finished_at=None)
    before = list(unfinished.values_list("pk", flat=True))
    while auditing.proceed(SECONDS):
        pass
    after = AuditEntry.objects.using(settings().DATABASE).in_bulk(before).values()
    finished = [entry for entry in after if entry.finished_at is not None]
    return Answer.of(
        {"finished": [str(entry) for entry in finished], "jobs": sum(one.done for one in finished)}
    )
