"""Export from PostgreSQL to Parquet files in a task, by Arrow batches without Spark rows."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.parquet import ParquetWriter

from pulljobs.ids import EPOCH, SEQUENCE_BITS
from pyspark_pulljobs.filesystems import open_location
from pyspark_pulljobs.schemas import DICTIONARY_COLUMNS, NAME_COLUMNS, STATISTICS, TABLES
from pyspark_pulljobs.selecting import batches

DAY_MILLISECONDS: Final = 86_400_000
UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
Names = Mapping[int, tuple[str, ...]]
"""Names by id, in the order of the columns of names."""
Ranges = dict[str, tuple[int, int]]
"""Lowest and highest value by column. Times are in microseconds."""


class Slice(NamedTuple):
    """Slice: part of the rows of an export run, which one task reads and writes."""

    number: int
    table: str
    query: str
    """Query for the rows, with all values written into its text."""


class ExportParameters(NamedTuple):
    """Arguments of the tasks of an export run, equal for all of them."""

    dsn: str
    reader: str
    """Way to read rows from PostgreSQL: "adbc" or "copy"."""
    location: str
    run: int
    """Number of the export run, with which the names of its files begin."""
    names: Mapping[str, Names]
    """Names to fill in, by table of the lake and id."""


class ExportedFile(NamedTuple):
    """Complete file that an export run wrote."""

    slice: int
    """Number of the `Slice` whose rows the file has."""
    table: str
    day: date
    path: str
    """Path relative to the directory of its table."""
    rows: int
    bytes: int
    ranges: dict[str, tuple[int | str, int | str]]
    """Lowest and highest value by column, as the Delta log writes them."""


def prefix_files(run: int) -> str:
    """Return the first characters of the names of an export run's files."""
    return f"run{run}-"


def write(parameters: ExportParameters, slices: Iterable[Slice]) -> Iterator[ExportedFile]:
    """Write each slice (a range of an export run's rows), a file for each day. Yield the files.

    Spark may repeat a task, so file names are unique. Readers of the Delta log see the files once
    the run commits them. The files of a slice that fails are removed.
    """
    for piece in slices:
        days = _Days(parameters, piece)
        try:
            for batch in batches(
                parameters.reader, parameters.dsn, piece.query, read_schema(piece.table)
            ):
                days.write(_add_names(batch, piece.table, parameters.names[piece.table]))
            days.close()
        except BaseException:
            days.discard()
            raise
        yield from days.files()


def read_schema(table: str) -> pa.Schema:
    """Return the columns that the export reads from PostgreSQL for a table of the lake.

    They are those of the lake's table except the names of channel and consumer, which tasks add.
    """
    name_columns = NAME_COLUMNS[table][1]
    return pa.schema([field for field in TABLES[table] if field.name not in name_columns])


class _Days:
    """Open files of a `Slice`, by the day of their rows as a number of days since 2020-01-01."""

    def __init__(self, parameters: ExportParameters, piece: Slice) -> None:
        self._filesystem = open_location(f"{parameters.location}/{piece.table}")
        self._run, self._piece = parameters.run, piece
        self._writers: dict[int, ParquetWriter] = {}
        self._paths: dict[int, str] = {}
        self._rows: Counter[int] = Counter()
        self._ranges: dict[int, Ranges] = {}

    def write(self, batch: pa.RecordBatch) -> None:
        days = pc.divide(pc.shift_right(batch["id"], SEQUENCE_BITS), DAY_MILLISECONDS)
        distinct = pc.unique(days).to_pylist()
        for day in distinct:
            rows = batch if len(distinct) == 1 else batch.filter(pc.equal(days, day))
            if day not in self._writers:
                self._open(day)
            self._writers[day].write_batch(rows)
            self._count(day, rows)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def discard(self) -> None:
        """Close and remove the files. Errors of the operating system are ignored."""
        for day, path in self._paths.items():
            with suppress(OSError):
                self._writers[day].close()
                self._filesystem.delete_file(path)

    def files(self) -> Iterator[ExportedFile]:
        for day, path in self._paths.items():
            size, rows = self._filesystem.get_file_info(path).size, self._rows[day]
            ranges = _as_logged(self._ranges[day], TABLES[self._piece.table])
            yield ExportedFile(
                self._piece.number, self._piece.table, _date_of(day), path, rows, size, ranges
            )

    def _open(self, day: int) -> None:
        folder = f"day={_date_of(day).isoformat()}"
        path = f"{folder}/{prefix_files(self._run)}{uuid4().hex}.parquet"
        self._filesystem.create_dir(folder, recursive=True)
        self._writers[day] = ParquetWriter(
            path,
            TABLES[self._piece.table],
            filesystem=self._filesystem,
            compression="zstd",
            use_dictionary=DICTIONARY_COLUMNS,
        )
        self._paths[day], self._ranges[day] = path, {}

    def _count(self, day: int, rows: pa.RecordBatch) -> None:
        self._rows[day] += len(rows)
        ranges = self._ranges[day]
        for name in (name for name in STATISTICS if name in rows.schema.names):
            bounds: dict[str, int] = pc.min_max(rows[name].cast(pa.int64())).as_py()
            low, high = ranges.get(name, (bounds["min"], bounds["max"]))
            ranges[name] = (min(low, bounds["min"]), max(high, bounds["max"]))


def _as_logged(ranges: Ranges, schema: pa.Schema) -> dict[str, tuple[int | str, int | str]]:
    """Return lowest and highest value by column as the Delta log has them, times in ISO 8601."""

    def to_value(name: str, number: int) -> int | str:
        if not pa.types.is_timestamp(schema.field(name).type):
            return number
        time = UNIX_EPOCH + timedelta(microseconds=number)
        return f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"

    return {
        name: (to_value(name, low), to_value(name, high)) for name, (low, high) in ranges.items()
    }


def _date_of(day: int) -> date:
    return (EPOCH + timedelta(days=day)).date()


def _add_names(batch: pa.RecordBatch, table: str, names: Names) -> pa.RecordBatch:
    """Return the batch with the names that belong to its ids, in the column order of the table."""
    id_column, columns = NAME_COLUMNS[table]
    known = pa.array(list(names), pa.int64())
    indexes = pc.index_in(batch[id_column], value_set=known)
    texts = {
        column: pa.array([name[position] for name in names.values()], pa.string()).take(indexes)
        for position, column in enumerate(columns)
    }
    schema = TABLES[table]
    arrays = [texts[name] if name in texts else batch[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
