"""Batch reads: `spark.read.format("pulljobs")` for the archive, the messages or the live jobs.

    spark.read.format("pulljobs").options(dsn=..., table="archive")

Only the columns of the schema are read, so `.schema("id long, state string")` reads two. With the
option `pushdown` PostgreSQL applies filters, if `spark.sql.python.filterPushdown.enabled` is set.
Spark 4.3 then repeats them in later queries of the same DataFrame, so each query has to load it.
Each of `partitions` reads a range of ids, and sees the rows that are committed when it starts.
Partitions share no snapshot.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import pyarrow as pa
from psycopg import sql
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import conditions
from pyspark_pulljobs.connecting import parse_dsn
from pyspark_pulljobs.database_session import open_session
from pyspark_pulljobs.schemas import ARCHIVE, MESSAGES, TIME
from pyspark_pulljobs.selecting import ADBC, READERS, batches

JOBS: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("message_id", pa.int64(), nullable=False),
        pa.field("consumer_id", pa.int64(), nullable=False),
        pa.field("channel", pa.string()),
        pa.field("consumer", pa.string()),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("available_at", TIME),
        pa.field("first_claimed_at", TIME),
        pa.field("retry_count", pa.int32(), nullable=False),
        pa.field("deliveries", pa.int32(), nullable=False),
        pa.field("priority", pa.int32(), nullable=False),
        pa.field("key", pa.string()),
        pa.field("error", pa.string()),
    ]
)
NAME_EXPRESSIONS: Final = {
    "consumer": "(SELECT name FROM pulljobs_consumer WHERE id = t.consumer_id)",
    "channel": "(SELECT channel.name FROM pulljobs_channel AS channel JOIN pulljobs_consumer "
    "ON channel_id = channel.id WHERE pulljobs_consumer.id = t.consumer_id)",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Table of PostgreSQL that can be read, with its columns for Spark."""

    table: str
    columns: pa.Schema
    expressions: Mapping[str, str]
    """SQL of computed columns, by name. Other columns are read as they are."""


SOURCES: Final = {
    "archive": Source(
        "pulljobs_archived_job",
        pa.schema(list(ARCHIVE)),
        {
            **NAME_EXPRESSIONS,
            "node_id": "t.node_id::text",
            "lease_token": "t.lease_token::text",
            "result": "t.result::text",
        },
    ),
    "messages": Source(
        "pulljobs_message",
        pa.schema(list(MESSAGES)),
        {
            "channel": "(SELECT name FROM pulljobs_channel WHERE id = t.channel_id)",
            "priority": "t.priority::int",
            "headers": "t.headers::text",
            "payload_bytes": "length(t.payload)::bigint",
            "payload_md5": "md5(t.payload)",
        },
    ),
    "jobs": Source(
        "pulljobs_job",
        JOBS,
        {
            **NAME_EXPRESSIONS,
            "priority": "t.priority::int",
            "available_at": "CASE WHEN isfinite(t.available_at) THEN t.available_at END",
        },
    ),
}
OPTION_NAMES: Final = ("dsn", "table", "partitions", "pushdown", "reader")


def schema(options: Mapping[str, str]) -> StructType:
    """Return all columns of the table that the option `table` names."""
    return from_arrow_schema(_find_source(options).columns)


def reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """Return Spark's reader for these options and columns.

    Raise ConfigurationError for wrong options or columns.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name in given.keys() - set(OPTION_NAMES) - {"path"}:
        raise ConfigurationError(
            f"{name!r} is no option of a read: the options are {', '.join(OPTION_NAMES)}."
        )
    partitions = given.get("partitions", "4")
    if not partitions.isdecimal() or int(partitions) < 1:
        raise ConfigurationError(f'Option "partitions" must be 1 or more, not {partitions!r}.')
    method = given.get("reader", ADBC)
    if method not in READERS:
        raise ConfigurationError(f'Option "reader" must be {" or ".join(READERS)}, not {method!r}.')
    source = _find_source(given)
    kind = PushingReader if given.get("pushdown", "false").lower() == "true" else Reader
    return kind(parse_dsn(given), source, _select_columns(source, schema), int(partitions), method)


@dataclass
class IdRange(InputPartition):
    """Partition of a read: the rows with ids from `first` to below `last`."""

    first: int
    last: int


class Reader(DataSourceReader):
    """Spark's reader of a table, which has a range of ids for each partition."""

    def __init__(
        self, dsn: str, source: Source, columns: pa.Schema, partitions: int, method: str
    ) -> None:
        self._dsn, self._source, self._columns = dsn, source, columns
        self._partitions, self._method = partitions, method
        self._conditions: list[str] = []

    def partitions(self) -> Sequence[IdRange]:
        """Divide the ids of the table into ranges of equal length.

        Ids are time-ordered, so the ranges cover about equal lengths of time.
        """
        query = sql.SQL("SELECT min(id), max(id) FROM {}").format(self._table)
        with open_session(self._dsn) as session:
            [(low, high)] = session.execute(query)
        if low is None:
            return [IdRange(0, 0)]
        step = max(-(-(high + 1 - low) // self._partitions), 1)
        return [IdRange(first, first + step) for first in range(low, high + 1, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, IdRange)
        yield from batches(self._method, self._dsn, self._query(partition), self._columns)

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self._source.table)

    def _query(self, ids: IdRange) -> str:
        columns = ", ".join(
            f"{self._source.expressions.get(name, f't.{name}')} AS {name}"
            for name in self._columns.names
        )
        predicates = [f"t.id >= {ids.first}", f"t.id < {ids.last}", *self._conditions]
        return f"SELECT {columns} FROM {self._source.table} AS t WHERE {' AND '.join(predicates)}"


class PushingReader(Reader):
    """Reader that pushes filters to PostgreSQL.

    It is a class of its own, because Spark raises an error if a reader has `pushFilters` while
    pushdown is not enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Keep the filters that PostgreSQL can apply, and return the others to Spark."""
        for spark_filter in filters:
            condition = conditions.translate_filter(
                spark_filter, self._source.columns, self._source.expressions
            )
            if condition is None:
                yield spark_filter
            else:
                self._conditions.append(condition)


def _find_source(options: Mapping[str, str]) -> Source:
    name = options.get("table", "")
    if name not in SOURCES:
        hint = f", not {name!r}" if name else ""
        raise ConfigurationError(f'Option "table" must be {" or ".join(SOURCES)}{hint}.')
    return SOURCES[name]


def _select_columns(source: Source, schema: StructType) -> pa.Schema:
    """Return the requested columns, in their order.

    Raise ConfigurationError if there is none, or if one is unknown or of another type.
    """
    known = from_arrow_schema(source.columns)
    for field in schema.fields:
        if field.name not in known.names:
            nearest = get_close_matches(field.name, known.names, 1, 0.4)
            hint = f"; did you mean {nearest[0]!r}?" if nearest else "."
            raise ConfigurationError(f"{source.table} has no column {field.name!r}{hint}")
        if field.dataType != known[field.name].dataType:
            wanted = known[field.name].dataType.simpleString()
            raise ConfigurationError(
                f"Column {field.name!r} is of type {wanted}, not {field.dataType.simpleString()}."
            )
    if not schema.fields:
        raise ConfigurationError(
            "The schema has no column: name at least one. To count, read the id."
        )
    return pa.schema(
        [source.columns.field(field.name).with_nullable(field.nullable) for field in schema.fields]
    )
