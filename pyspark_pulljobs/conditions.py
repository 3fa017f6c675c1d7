"""Filters of Spark as conditions of SQL."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

COMPARED: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    EqualNullSafe: "IS NOT DISTINCT FROM",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
ORDERED: Final = frozenset({GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual})


def of(one: Filter, columns: pa.Schema, expressions: Mapping[str, str]) -> str | None:
    """None: it is left to Spark."""
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns.names:
        return None
    name = attribute[0]
    column = expressions.get(name, f"t.{name}")
    if isinstance(one, IsNull):
        return f"{column} IS NULL"
    if isinstance(one, IsNotNull):
        return f"{column} IS NOT NULL"
    values = one.value if isinstance(one, In) else (getattr(one, "value", None),)
    if not all(_fits(value, columns.field(name).type) for value in values):
        return None
    return _compared(one, column, values)


def _compared(one: Filter, column: str, values: Sequence[Any]) -> str | None:
    literals = [sql.Literal(value).as_string(None).strip() for value in values]
    if isinstance(one, In):
        return f"{column} IN ({', '.join(literals)})" if literals else "false"
    if isinstance(one, StringStartsWith):
        return f"starts_with({column}, {literals[0]})"
    operator = COMPARED.get(type(one))
    if operator is None:
        return None
    # Spark compares texts by their bytes, whatever the database's language has them sorted by.
    collation = ' COLLATE "C"' if type(one) in ORDERED and isinstance(values[0], str) else ""
    return f"{column} {operator} {literals[0]}{collation}"


FITTING: Final[tuple[tuple[Callable[[pa.DataType], bool], type], ...]] = (
    (pa.types.is_integer, int),
    (pa.types.is_string, str),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_binary, bytes),
)


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether it is of the column's own type, and can be said to PostgreSQL."""
    if isinstance(value, str) and "\x00" in value:
        return False
    if isinstance(value, datetime) and value.utcoffset() is None:
        return False
    return any(is_kind(kind) and isinstance(value, python) for is_kind, python in FITTING)
