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
    """Id of the current transaction as a number, for which there are block range indexes."""

    template = "pg_current_xact_id()::text::bigint"
    output_field = models.BigIntegerField()


class ClockTime(models.Func):
    """Time of the database's clock at which a row is written."""

    template = "clock_timestamp()"
    output_field = models.DateTimeField()


class CurrentTransaction(models.Func):
    """Id of the current transaction, which it gets if it has none."""

    template = "pg_current_xact_id()"


class TransactionIdField(models.Field):  # type: ignore[type-arg]  # generic for mypy only
    """Id of a transaction, in the form that a snapshot can be asked for."""

    def db_type(self, connection: Any) -> str:
        return "xid8"


class ChangedAtField(models.DateTimeField):  # type: ignore[type-arg]  # generic for mypy only
    """Time of the last save. Each save gets a second of its own, the resolution of HTTP dates."""

    def pre_save(self, model_instance: models.Model, add: bool) -> datetime:
        now, before = timezone.now(), getattr(model_instance, self.attname)
        if before is not None:
            now = max(now, before.replace(microsecond=0) + timedelta(seconds=1))
        setattr(model_instance, self.attname, now)
        return now


class StatementTime(models.DateTimeField):  # type: ignore[type-arg]  # generic for mypy only
    """Time that only statements write. A row that is saved keeps the time that it has by then.

    Otherwise a form that was read before a throttle would end it.
    """

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Return the value of a new row, and no change for another row."""
        return super().pre_save(model_instance, add) if add else models.F(self.attname)
