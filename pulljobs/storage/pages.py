"""Lists that are read newest first, a page at a time."""

from typing import Final, NamedTuple, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)
SIZE: Final = 25


class Cut(NamedTuple):
    """Which page: what lies below this id, or next above that one; neither: the first."""

    below: int | None = None
    above: int | None = None


def newest_first(rows: QuerySet[M], cut: Cut, size: int = SIZE) -> list[M]:
    """By their ids, which rise with time."""
    if cut.above is not None:
        return list(rows.filter(pk__gt=cut.above).order_by("pk")[:size])[::-1]
    if cut.below is not None:
        rows = rows.filter(pk__lt=cut.below)
    return list(rows.order_by("-pk")[:size])
