"""Translation of Spark's filters to SQL conditions, which PostgreSQL applies to a read."""

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

OPERATORS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "=",
    EqualNullSafe: "IS NOT DISTINCT FROM",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}
ORDER_FILTERS: Final = frozenset({GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual})


def translate_filter(
    spark_filter: Filter, columns: pa.Schema, expressions: Mapping[str, str]
) -> str | None:
    """Return the SQL condition for a filter, or None if Spark must apply the filter itself.

    `expressions` has the SQL of computed columns, by name. Other columns are those of the table
    `t`.
    """
    attribute: tuple[str, ...] = getattr(spark_filter, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in columns.names:
        return None
    name = attribute[0]
    column = expressions.get(name, f"t.{name}")
    if isinstance(spark_filter, IsNull):
        return f"{column} IS NULL"
    if isinstance(spark_filter, IsNotNull):
        return f"{column} IS NOT NULL"
    if isinstance(spark_filter, In):
        values = spark_filter.value
    else:
        values = (getattr(spark_filter, "value", None),)
    if not all(_is_comparable(value, columns.field(name).type) for value in values):
        return None
    return _compare(spark_filter, column, values)


def _compare(spark_filter: Filter, column: str, values: Sequence[Any]) -> str | None:
    literals = [sql.Literal(value).as_string(None).strip() for value in values]
    if isinstance(spark_filter, In):
        return f"{column} IN ({', '.join(literals)})" if literals else "false"
    if isinstance(spark_filter, StringStartsWith):
        return f"starts_with({column}, {literals[0]})"
    operator = OPERATORS.get(type(spark_filter))
    if operator is None:
        return None
    # Spark compares texts by their bytes; the collation of the database may differ.
    is_ordered = type(spark_filter) in ORDER_FILTERS and isinstance(values[0], str)
    collation = ' COLLATE "C"' if is_ordered else ""
    return f"{column} {operator} {literals[0]}{collation}"


COMPARABLE_TYPES: Final[tuple[tuple[Callable[[pa.DataType], bool], type], ...]] = (
    (pa.types.is_integer, int),
    (pa.types.is_string, str),
    (pa.types.is_timestamp, datetime),
    (pa.types.is_binary, bytes),
)


def _is_comparable(value: Any, kind: pa.DataType) -> bool:
    """Return True if the value has the column's type, and PostgreSQL can represent it."""
    if isinstance(value, str) and "\x00" in value:
        return False
    if isinstance(value, datetime) and value.utcoffset() is None:
        return False
    return any(is_kind(kind) and isinstance(value, python) for is_kind, python in COMPARABLE_TYPES)
