"""Column types and defaults that Django has no word for."""

from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class TimeOrderedId(models.Func):
    """The default of an id column: see `pulljobs.ids` for its layout."""

    template = (
        "(((extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000) << 22)"
        " | nextval('pulljobs_id')"
    )
    output_field = models.BigIntegerField()


class Xid8Field(models.BigIntegerField):  # type: ignore[type-arg]  # generic for mypy only
    """A 64-bit transaction id, which never wraps around."""

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "xid8"

    def from_db_value(self, value: Any, *args: object) -> int | None:
        return None if value is None else int(value)


class CurrentTransaction(models.Func):
    template = "pg_current_xact_id()"
    output_field = Xid8Field()
