"""Column types and database defaults that Django does not have."""

from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.utils import timezone

from pulljobs.ids import EPOCH_MILLISECONDS


class TimeOrderedId(models.Func):
    """Database default of an id column, with the layout that `pulljobs.ids` describes."""

    template = (
        f"(((extract(epoch from clock_timestamp()) * 1000)::bigint - {EPOCH_MILLISECONDS}) << 22)"
        " | nextval('pulljobs_id')"
    )
    output_field = models.BigIntegerField()


class TransactionNumber(models.Func):
    """Id of the current transaction as bigint, for columns with a BRIN index, which xid8 lacks."""

    template = "pg_current_xact_id()::text::bigint"
    output_field = models.BigIntegerField()


class ClockTime(models.Func):
    """Present time by the database's clock, not the start of the transaction as in `Now`."""

    template = "clock_timestamp()"
    output_field = models.DateTimeField()


class CurrentTransaction(models.Func):
    """Id of the current transaction as xid8. PostgreSQL assigns one if it has none."""

    template = "pg_current_xact_id()"


class TransactionIdField(models.Field):  # type: ignore[type-arg]  # generic for mypy only
    """Column for the id of a transaction: xid8, which `pg_visible_in_snapshot` accepts."""

    def db_type(self, connection: Any) -> str:
        return "xid8"


class ChangedAtField(models.DateTimeField):  # type: ignore[type-arg]  # generic for mypy only
    """Time of the last save, always in a later second than that of the save before.

    So the header Last-Modified, which has whole seconds, differs after each save.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> datetime:
        now, before = timezone.now(), getattr(model_instance, self.attname)
        if before is not None and not add:  # Django 6.1 asks twice for the value of a new row
            now = max(now, before.replace(microsecond=0) + timedelta(seconds=1))
        setattr(model_instance, self.attname, now)
        return now


class StatementTime(models.DateTimeField):  # type: ignore[type-arg]  # generic for mypy only
    """Time that SQL statements write, and that `save()` of an existing row does not change.

    Otherwise a form that was opened before a throttle began would end it when it is saved.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Return the value to save: the attribute of a new row, else the column's present value."""
        return super().pre_save(model_instance, add) if add else models.F(self.attname)
