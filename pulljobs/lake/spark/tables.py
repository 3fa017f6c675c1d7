"""Delta tables of the lake: the list of their files, and commits of new files."""

import json
import time
from collections.abc import Collection, Iterable, Mapping
from datetime import date
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction
from pyarrow import fs

from pulljobs.conf import SETTING, settings
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake import ledger
from pyspark_pulljobs.schemas import DAY, TABLES, VERSION
from pyspark_pulljobs.writing import ExportedFile, open_location

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_TYPES: Final = {
    pa.int64(): "long",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", tz="UTC"): "timestamp",
    pa.date32(): "date",
}


class LoggedFile(NamedTuple):
    """File in the Delta log. Its `path` is relative to the table's directory."""

    path: str
    day: date
    rows: int
    bytes: int


def location() -> str:
    """Return the location of PULLJOBS['LAKE'], or raise ConfigurationError if there is no lake."""
    if not (where := ledger.location(settings().LAKE)):
        raise ConfigurationError(f"There is no lake: set {SETTING}['LAKE'] to its directory.")
    return where


class Table:
    """Table of the lake at a location, which need not exist yet."""

    def __init__(self, where: str, name: str) -> None:
        self.name, self.location = name, f"{where}/{name}"

    @cached_property
    def filesystem(self) -> tuple[fs.FileSystem, str]:
        return open_location(self.location)

    def delta(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.location)
        except TableNotFoundError:
            return None

    def last_run(self) -> int:
        """Return the last run whose files are in the table, or 0 if there is none."""
        table = self.delta()
        return (table.transaction_version(self._application) or 0) if table else 0

    def list_files(self, days: Collection[date] | None = None) -> list[LoggedFile]:
        """Return the files of the log, only of `days` if given."""
        table = self.delta()
        if table is None:
            return []
        columns = pa.table(table.get_add_actions(flatten=True)).to_pydict()
        files = [
            LoggedFile(path, _day(day), rows, size)
            for path, day, rows, size in zip(
                columns["path"],
                columns.get("partition.day", []),
                columns["num_records"],
                columns["size_bytes"],
                strict=True,
            )
        ]
        return [file for file in files if days is None or file.day in days]

    def frame(self, spark: "SparkSession", days: Collection[date] | None = None) -> "DataFrame":
        """Return the rows of the files of the log, only of `days` if given."""
        return self.frame_of(spark, self.list_files(days))

    def frame_of(self, spark: "SparkSession", files: Iterable[LoggedFile]) -> "DataFrame":
        paths = [f"{self.location}/{held.path}" for held in files]
        if not paths:
            return spark.createDataFrame([], self.spark_schema())
        reader = spark.read.schema(self.spark_schema()).option("basePath", self.location)
        return reader.parquet(*paths)

    def spark_schema(self) -> str:
        fields = [*TABLES[self.name], DAY]
        return ", ".join(f"`{field.name}` {SPARK_TYPES[field.type]}" for field in fields)

    def commit(self, run: int, files: Iterable[ExportedFile], names: Mapping[str, str]) -> None:
        """Add the files of a run under their new names, or raise LakeError if the run is there."""
        table = self._made()
        if (table.transaction_version(self._application) or 0) >= run:
            raise LakeError(f"{self.location} has the files of run {run}, or of a later one.")
        actions: list[AddAction | RemoveAction] = [
            _action(file, names[file.path]) for file in files
        ]
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

    def _made(self) -> DeltaTable:
        return self.delta() or DeltaTable.create(
            self.location,
            pa.schema([*TABLES[self.name], DAY]),
            mode="ignore",
            partition_by=["day"],
            name=f"pulljobs_{self.name}",
            description=f"pulljobs, schema {VERSION}",
        )


def _action(file: ExportedFile, path: str) -> AddAction:
    stats = {
        "numRecords": file.rows,
        "minValues": {"id": file.low_id},
        "maxValues": {"id": file.high_id},
        "nullCount": {"id": 0},
    }
    day: dict[str, str | None] = {"day": file.day.isoformat()}
    return AddAction(path, file.bytes, day, int(time.time() * 1000), True, json.dumps(stats))


def _day(value: Any) -> date:
    return value if isinstance(value, date) else date.fromisoformat(value)
