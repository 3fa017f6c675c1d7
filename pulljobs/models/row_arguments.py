"""Check of arguments of the public API that must be instances of models."""

from django.db import models


def check_row(row: object, *kinds: type[models.Model]) -> None:
    """Raise TypeError unless `row` is an instance of one of the models, not for example a name."""
    if not isinstance(row, kinds):
        kind = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"Give a {kind}, the row itself, not {row!r}.")
