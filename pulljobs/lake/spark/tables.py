"""Delta tables of the lake: the list of their files, and commits of new files."""

import json
import os
import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, WriterProperties
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs
from pyspark.sql.pandas.types import from_arrow_schema

from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake import locations
from pulljobs.lake.spark import jvm
from pyspark_pulljobs import lake_files
from pyspark_pulljobs.filesystems import open_location
from pyspark_pulljobs.schemas import DAY, STATISTICS, TABLES, VERSION
from pyspark_pulljobs.writing import ExportedFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DESCRIPTION: Final = f"pulljobs, schema {VERSION}"
"""Description of every table, which names the version of its schema."""
PATTERNS: Final = r"*?[]{}\^|"
"""Characters that Spark takes as patterns of paths, or of which the Delta library panics."""
MISREAD: Final = re.compile(rf"[{re.escape(PATTERNS)}\x00-\x1f]|%[0-9A-Fa-f]{{2}}")
"""Pattern of paths that Spark or the Delta library reads as others, or refuses."""
PROBE: Final = "_probe"
"""Name of a file that only tests whether files can be written. Readers of Delta ignore it."""
WRITER: Final = WriterProperties(compression="ZSTD")
"""Properties with which files are rewritten: compressed as the export writes them."""


class LoggedFile(NamedTuple):
    """Data file that the newest version of a Delta table names."""

    path: str
    """Path relative to the directory of the table."""
    day: date
    rows: int
    bytes: int
    ranges: Mapping[str, tuple[Any, Any]]
    """Lowest and highest value by column, for the columns in `schemas.STATISTICS`."""


def location() -> str:
    """Return the lake's location. Raise ConfigurationError if the setting is empty or wrong."""
    if not (normalized := locations.normalize_location(settings().LAKE)):
        raise ConfigurationError(
            f"There is no lake: set {SETTING}['LAKE'] to its directory or URL."
        )
    if MISREAD.search(normalized):
        raise ConfigurationError(
            f"{SETTING}['LAKE'] is {normalized!r}: choose a path without {PATTERNS}, without "
            "control characters, and without % before two hexadecimal digits."
        )
    return normalized


def open_writable_tables(location: str) -> dict[str, "Table"]:
    """Return the tables of the lake by name, or raise OSError if one cannot be written to."""
    opened = {name: Table(location, name) for name in TABLES}
    for table in opened.values():
        table.check_writable()
    return opened


class Table:
    """Delta table of the lake at a location, which need not exist yet."""

    def __init__(self, location: str, name: str) -> None:
        self.name, self.location = name, f"{location}/{name}"

    @cached_property
    def filesystem(self) -> fs.FileSystem:
        """Filesystem whose root is the directory of the table."""
        return open_location(self.location)

    def delta(self) -> DeltaTable | None:
        """Open the newest version of the table, or return None if it does not exist."""
        try:
            return DeltaTable(self.location, storage_options=self._options)
        except TableNotFoundError:
            return None

    def last_run(self) -> int:
        """Return the number of the last export run with files in the table, or 0 if none has."""
        table = self.delta()
        return (table.transaction_version(self._application) or 0) if table else 0

    def check_writable(self) -> None:
        """Raise OSError if the table exists and no file can be written to its directory.

        The Delta library would print a trace of a panic, and only then raise an error.
        """
        if self.delta() is not None:
            self.filesystem.open_output_stream(PROBE).close()
            self.filesystem.delete_file(PROBE)

    def list_files(self, days: Collection[date] | None = None) -> list[LoggedFile]:
        """Return the data files of the newest version, only those of `days` if given."""
        table = self.delta()
        if table is None:
            return []
        rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        return [file for file in map(_logged, rows) if days is None or file.day in days]

    def frame(self, spark: "SparkSession", columns: Sequence[str] = ()) -> "DataFrame":
        """Return the rows of the newest version as a DataFrame, with these columns or all."""
        return self.frame_of(spark, self.list_files(), columns)

    def frame_of(
        self, spark: "SparkSession", files: Iterable[LoggedFile], columns: Sequence[str] = ()
    ) -> "DataFrame":
        """Return the rows of these files as a DataFrame, with these columns or all.

        Spark reads the files itself if its JVM has a filesystem for the location. Otherwise its
        Python workers read them through the Delta library's object store, so that no jar is needed.
        """
        schema, paths = self._schema(columns), [(held.path, held.day) for held in files]
        if not paths:
            return spark.createDataFrame([], from_arrow_schema(schema))
        if (base := jvm.find_url(spark, self.location)) is None:
            read = partial(lake_files.read_files, self.location, schema)
            named = spark.createDataFrame(paths, "path string, day date")
            return named.mapInArrow(read, from_arrow_schema(schema))
        reader = spark.read.schema(from_arrow_schema(schema)).option("basePath", base)
        return reader.parquet(*(f"{base}/{path}" for path, _day in paths))

    def read_here(
        self,
        files: Iterable[LoggedFile],
        columns: Sequence[str] = (),
        *,
        encoded: Sequence[str] = (),
        batch_rows: int = lake_files.BATCH,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of these files, read by this process, with these columns or all.

        Text columns named in `encoded` have Arrow's dictionary encoding.
        """
        named = pa.RecordBatch.from_pylist([{"path": held.path, "day": held.day} for held in files])
        schema = pa.schema([_encode(field, encoded) for field in self._schema(columns)])
        return lake_files.read_files(self.location, schema, [named], batch_rows)

    def _schema(self, columns: Sequence[str]) -> pa.Schema:
        fields = pa.schema([*TABLES[self.name], DAY])
        return pa.schema([fields.field(name) for name in columns or fields.names])

    def commit(self, run: int, files: Iterable[ExportedFile]) -> None:
        """Add the files of an export run to the Delta log.

        Raise LakeError if the log has this run or a later one, or if it refuses the files.
        """
        table = self.create()
        if (table.transaction_version(self._application) or 0) >= run:
            raise LakeError(f"{self.location} has the files of run {run}, or of a later one.")
        actions: list[AddAction | RemoveAction] = [_action(file) for file in files]
        try:
            table.create_write_transaction(
                actions,
                "append",
                pa.schema([*TABLES[self.name], DAY]),
                ["day"],
                commit_properties=CommitProperties(
                    app_transactions=[Transaction(self._application, run)]
                ),
            )
        except DeltaError as error:
            raise LakeError(
                f"The log of {self.location} took no files of run {run}: {error}"
            ) from error

    @property
    def _application(self) -> str:
        return f"pulljobs.{self.name}"

    @property
    def _options(self) -> dict[str, str]:
        return locations.choose_storage_options(self.location, os.environ)

    def create(self) -> DeltaTable:
        """Open the table, after creating it or adding columns that are new in this release."""
        table = self.delta() or self._create()
        self._add_columns(table)
        return table

    def _create(self) -> DeltaTable:
        return DeltaTable.create(
            self.location,
            pa.schema([*TABLES[self.name], DAY]),
            mode="ignore",
            partition_by=["day"],
            name=f"pulljobs_{self.name}",
            description=DESCRIPTION,
            configuration=self._configuration(),
            storage_options=self._options,
        )

    def _add_columns(self, table: DeltaTable) -> None:
        """Add columns that a table of an earlier release lacks. They are NULL in its files."""
        known = {field.name for field in table.schema().fields}
        new = [field.with_nullable(True) for field in TABLES[self.name] if field.name not in known]
        if new:
            table.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)
            table.alter.set_table_description(DESCRIPTION)

    def _configuration(self) -> dict[str, str | None]:
        columns = [name for name in STATISTICS if name in TABLES[self.name].names]
        return {"delta.dataSkippingStatsColumns": ",".join(columns)}


def _action(file: ExportedFile) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {name: low for name, (low, _high) in file.ranges.items()},
        "maxValues": {name: high for name, (_low, high) in file.ranges.items()},
        "nullCount": dict.fromkeys(file.ranges, 0),
    }
    day: dict[str, str | None] = {"day": file.day.isoformat()}
    return AddAction(file.path, file.bytes, day, int(time.time() * 1000), True, json.dumps(stats))


def _encode(field: pa.Field, encoded: Collection[str]) -> pa.Field:
    """Return the field, in dictionary encoding if `encoded` has its name."""
    is_encoded = field.name in encoded
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if is_encoded else field


def _logged(row: Mapping[str, Any]) -> LoggedFile:
    """Return the data file that a row of the Delta library's `get_add_actions` describes.

    Its `ranges` lacks the columns for which the file has no statistics.
    """
    ranges = {
        name: (row[f"min.{name}"], row[f"max.{name}"])
        for name in STATISTICS
        if row.get(f"min.{name}") is not None and row.get(f"max.{name}") is not None
    }
    day = _day(row["partition.day"])
    return LoggedFile(row["path"], day, row["num_records"], row["size_bytes"], ranges)


def _day(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)
