"""Columns that a DataFrame of messages may have, and their types."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from pyspark.sql import types

from pulljobs.errors import ConfigurationError

NUMBER_TYPES: Final = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
CORRUPT: Final = "corrupt_record"
"""Column with the text of records that Spark's reader could not parse."""
COLUMNS: Final[Mapping[str, tuple[type[types.DataType], ...]]] = {
    "payload": (types.BinaryType, types.StringType),
    "key": (types.StringType,),
    "priority": NUMBER_TYPES,
    "message_id": (types.StringType,),
    "headers": (types.MapType, types.StringType),
    "content_type": (types.StringType,),
    "delay": (types.DayTimeIntervalType, types.DoubleType, types.FloatType, *NUMBER_TYPES),
    "available_at": (types.TimestampType,),
    "cost": NUMBER_TYPES,
    "original_job": (types.LongType, types.StringType),
    CORRUPT: (types.StringType,),
}
"""Types by column. Each column is a field of a message, except the last two.

A numeric delay is in seconds. Headers as text are a JSON object. `original_job` is the id of the
job that the message replays. A row with a corrupt record is not a message.
"""


def check(schema: types.StructType, *, replays: bool) -> None:
    """Raise ConfigurationError if a column is unknown, missing or of a wrong type.

    Only the payload must not be missing. The column `original_job` is allowed only if the write
    `replays` jobs.
    """
    for column in schema.fields:
        if column.name not in COLUMNS:
            nearest = get_close_matches(column.name, COLUMNS, 1, 0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else "drop it."
            raise ConfigurationError(f"Column {column.name!r} is not a field of a message: {hint}")
        if not isinstance(column.dataType, COLUMNS[column.name]):
            raise ConfigurationError(_describe_wrong_type(column))
    if "payload" not in schema.names:
        raise ConfigurationError("There is no column 'payload': add one of type string or binary.")
    if "original_job" in schema.names and not replays:
        raise ConfigurationError(
            "Column 'original_job' needs the option consumer, which replays it."
        )


def _describe_wrong_type(column: types.StructField) -> str:
    wanted = " or ".join(kind.typeName() for kind in COLUMNS[column.name])
    hint = ": use to_json()." if column.name == "payload" else "."
    return f"Column {column.name!r} must be {wanted}, not {column.dataType.simpleString()}{hint}"
