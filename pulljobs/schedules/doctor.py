"""Check of schedules for `manage.py pulljobs doctor`."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from django.db.models import QuerySet
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.diagnosis.database_checks import Finding, list_names
from pulljobs.models import Consumer
from pulljobs.schedules.models import Schedule

LATE: Final = timedelta(minutes=1)
LISTED: Final = 1_000


def check_schedules() -> Iterator[Finding]:
    """Yield findings on schedules that are late, can't publish, or publish to no consumer."""
    using = settings().DATABASE
    rows = Schedule.objects.using(using).defer("payload", "headers").order_by("name")
    if late := _names(rows.filter(due_at__lt=Now() - LATE, failures=0)):
        yield Finding(
            "late_schedules",
            True,
            f"Schedules are due for more than a minute, and no process has fired them: "
            f"{list_names(late)}. Start a worker, or run `pulljobs schedules run`.",
        )
    for row in rows.filter(failures__gt=0)[:LISTED]:
        yield Finding(
            "refused_schedule",
            True,
            f"Schedule {row.name} can't publish ({row.failures} attempts): {row.error}",
        )
    consumers = Consumer.objects.using(using).filter(deleted_at=None)
    served = consumers.values("channel__name")
    if useless := _names(rows.exclude(due_at=None).exclude(channel_name__in=served)):
        yield Finding(
            "schedules_without_consumer",
            False,
            f"Schedules publish on channels without consumers, so nothing runs: "
            f"{list_names(useless)}.",
        )


def _names(rows: QuerySet[Schedule]) -> list[str]:
    return list(rows.values_list("name", flat=True)[:LISTED])
