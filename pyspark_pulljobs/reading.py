"""Batch reads: `spark.read.format("pulljobs")` for the archive, the messages or the live jobs.

    spark.read.format("pulljobs").options(dsn=..., table="archive")

Only the columns of the schema are read, so `.schema("id long, state string")` reads two. With the
option `pushdown` PostgreSQL applies filters; it needs `spark.sql.python.filterPushdown.enabled`.
Each of `partitions` reads a range of ids, and sees the rows that are committed when it starts: the
partitions share no snapshot.
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
from pyspark_pulljobs.connecting import dsn_of
from pyspark_pulljobs.schemas import ARCHIVE, MESSAGES, TIME
from pyspark_pulljobs.selecting import ADBC, READERS, batches
from pyspark_pulljobs.session import opened

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
NAMES: Final = {
    "consumer": "(SELECT name FROM pulljobs_consumer WHERE id = t.consumer_id)",
    "channel": "(SELECT channel.name FROM pulljobs_channel AS channel JOIN pulljobs_consumer "
    "ON channel_id = channel.id WHERE pulljobs_consumer.id = t.consumer_id)",
}


@dataclass(frozen=True, slots=True)
class Source:
    """Table that can be read; `expressions` has the SQL of columns that are computed or cast."""

    table: str
    columns: pa.Schema
    expressions: Mapping[str, str]


SOURCES: Final = {
    "archive": Source(
        "pulljobs_archived_job",
        pa.schema(list(ARCHIVE)),
        {
            **NAMES,
            "node_id": "t.node_id::text",
            "lease_token": "t.lease_token::text",
            "result": "t.result::text",
            "settled_xid": "t.settled_xid::text::bigint",
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
            **NAMES,
            "priority": "t.priority::int",
            "available_at": "CASE WHEN isfinite(t.available_at) THEN t.available_at END",
        },
    ),
}
NAMES_OF_OPTIONS: Final = ("dsn", "table", "partitions", "pushdown", "reader")


def schema(options: Mapping[str, str]) -> StructType:
    """Return all columns of the table."""
    return from_arrow_schema(_source(options).columns)


def reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    given = {name.lower(): value for name, value in options.items()}
    for name in given.keys() - set(NAMES_OF_OPTIONS) - {"path"}:
        raise ConfigurationError(
            f"{name!r} is no option of a read: the options are {', '.join(NAMES_OF_OPTIONS)}."
        )
    partitions = given.get("partitions", "4")
    if not partitions.isdecimal() or int(partitions) < 1:
        raise ConfigurationError(f'Option "partitions" must be 1 or more, not {partitions!r}.')
    how = given.get("reader", ADBC)
    if how not in READERS:
        raise ConfigurationError(f'Option "reader" must be {" or ".join(READERS)}, not {how!r}.')
    source = _source(given)
    kind = PushingReader if given.get("pushdown", "false").lower() == "true" else Reader
    return kind(dsn_of(given), source, _chosen(source, schema), int(partitions), how)


@dataclass
class Ids(InputPartition):
    """Range of ids, without `last`."""

    first: int
    last: int


class Reader(DataSourceReader):
    """Reader of a table, with a range of ids for each partition."""

    def __init__(
        self, dsn: str, source: Source, columns: pa.Schema, partitions: int, how: str
    ) -> None:
        self._dsn, self._source, self._columns = dsn, source, columns
        self._partitions, self._how = partitions, how
        self._conditions: list[str] = []

    def partitions(self) -> Sequence[Ids]:
        """Divide the ids into equal ranges, which are about equal in time: ids are time-ordered."""
        query = sql.SQL("SELECT min(id), max(id) FROM {}").format(self._table)
        with opened(self._dsn) as session:
            [(low, high)] = session.connection.execute(query)
        if low is None:
            return [Ids(0, 0)]
        step = max(-(-(high + 1 - low) // self._partitions), 1)
        return [Ids(first, first + step) for first in range(low, high + 1, step)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Ids)
        yield from batches(self._how, self._dsn, self._query(partition), self._columns)

    @property
    def _table(self) -> sql.Identifier:
        return sql.Identifier(self._source.table)

    def _query(self, ids: Ids) -> str:
        columns = ", ".join(
            f"{self._source.expressions.get(name, f't.{name}')} AS {name}"
            for name in self._columns.names
        )
        among = [f"t.id >= {ids.first}", f"t.id < {ids.last}", *self._conditions]
        return f"SELECT {columns} FROM {self._source.table} AS t WHERE {' AND '.join(among)}"


class PushingReader(Reader):
    """Reader that pushes filters to PostgreSQL.

    It is a class of its own, because Spark raises if a reader has `pushFilters` and pushing is not
    enabled.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:
        """Apply filters in PostgreSQL where possible, and return the others to Spark."""
        for spark_filter in filters:
            condition = conditions.of(spark_filter, self._source.columns, self._source.expressions)
            if condition is None:
                yield spark_filter
            else:
                self._conditions.append(condition)


def _source(options: Mapping[str, str]) -> Source:
    name = options.get("table", "")
    if name not in SOURCES:
        hint = f", not {name!r}" if name else ""
        raise ConfigurationError(f'Option "table" must be {" or ".join(SOURCES)}{hint}.')
    return SOURCES[name]


def _chosen(source: Source, schema: StructType) -> pa.Schema:
    """Return the columns of the requested schema, in its order."""
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
