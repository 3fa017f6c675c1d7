"""Column types and defaults that Django has no word for."""

from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone


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


class TransactionNumber(models.Func):
    """The same as a plain number, of which there are block range indexes."""

    template = "pg_current_xact_id()::text::bigint"
    output_field = models.BigIntegerField()


class ChangedAtField(models.DateTimeField):  # type: ignore[type-arg]  # generic for mypy only
    """When the row was saved last, in a second of its own: HTTP tells versions apart by seconds."""

    def pre_save(self, model_instance: models.Model, add: bool) -> datetime:
        now, before = timezone.now(), getattr(model_instance, self.attname)
        if before is not None:
            now = max(now, before.replace(microsecond=0) + timedelta(seconds=1))
        setattr(model_instance, self.attname, now)
        return now
