"""Pages of lists, newest first, that begin at an id instead of an offset."""

from typing import Final, NamedTuple, TypeVar

from django.db.models import Model, QuerySet

M = TypeVar("M", bound=Model)
SIZE: Final = 25


class Cut(NamedTuple):
    """Position of a page in a list by falling id.

    The page has the highest ids below `below`, or the lowest above `above`, or by default the
    highest of all.
    """

    below: int | None = None
    above: int | None = None


def newest_first(rows: QuerySet[M], cut: Cut, size: int = SIZE) -> list[M]:
    """Return at most `size` rows of a page, by falling id."""
    if cut.above is not None:
        return list(rows.filter(pk__gt=cut.above).order_by("pk")[:size])[::-1]
    if cut.below is not None:
        rows = rows.filter(pk__lt=cut.below)
    return list(rows.order_by("-pk")[:size])
