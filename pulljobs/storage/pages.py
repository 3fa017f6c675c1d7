"""Pages of lists that are read newest first."""

from typing import Final, NamedTuple, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)
SIZE: Final = 25


class Cut(NamedTuple):
    """Position of a page: below or next above an id. By default it is the first page."""

    below: int | None = None
    above: int | None = None


def newest_first(rows: QuerySet[M], cut: Cut, size: int = SIZE) -> list[M]:
    """Return a page of rows by falling id."""
    if cut.above is not None:
        return list(rows.filter(pk__gt=cut.above).order_by("pk")[:size])[::-1]
    if cut.below is not None:
        rows = rows.filter(pk__lt=cut.below)
    return list(rows.order_by("-pk")[:size])
