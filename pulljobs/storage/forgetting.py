"""Deletion of outdated rows in batches, so that no transaction gets long."""

from typing import Final, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)
AT_ONCE: Final = 10_000


def forget(rows: QuerySet[M]) -> int:
    """Delete a batch of these rows; return their number, 0 when none is left."""
    batch = rows.order_by("pk").values("pk")[:AT_ONCE]
    return rows.filter(pk__in=batch).delete()[0]
