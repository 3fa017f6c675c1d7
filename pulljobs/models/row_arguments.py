"""Check of arguments of the public API that must be rows."""

from django.db import models


def check_row(row: object, *kinds: type[models.Model]) -> None:
    """Raise TypeError for the name of a row, or anything else, in place of the row."""
    if not isinstance(row, kinds):
        kind = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"Give a {kind}, the row itself, not {row!r}.")
