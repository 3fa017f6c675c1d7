"""Old rows go a batch at a time, so that no transaction gets long."""

from typing import Final, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)
AT_ONCE: Final = 10_000


def forget(rows: QuerySet[M]) -> int:
    """Delete some of these, by their ids; how many, and 0 once there are no more."""
    batch = rows.order_by("pk").values("pk")[:AT_ONCE]
    return rows.filter(pk__in=batch).delete()[0]
