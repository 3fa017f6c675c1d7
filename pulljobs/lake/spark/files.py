"""Files that an export run wrote: their sums, and removal of those in no Delta log."""

from collections.abc import Iterable, Sequence

from pyarrow import fs

from pulljobs.lake.spark.tables import Table
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.writing import ExportedFile, prefix_files


def clean(tables: Iterable[Table], run: int) -> None:
    """Remove the files of an export run from these tables, whose Delta logs do not name the run.

    Tasks of an interrupted run may still write. Files that they write later stay until `lake
    vacuum`.
    """
    for table in tables:
        selector = fs.FileSelector("", recursive=True, allow_not_found=True)
        for entry in table.filesystem.get_file_info(selector):
            if entry.base_name.startswith(prefix_files(run)):
                table.filesystem.delete_file(entry.path)


def sum_files(
    files: Sequence[ExportedFile], known: Iterable[Table], run: int
) -> tuple[dict[str, int], int]:
    """Return the number of rows of an export run by table, and the size of its files in bytes.

    `files` were written just now. `known` are the tables whose Delta logs already name the run.
    """
    rows = {name: sum(f.rows for f in files if f.table == name) for name in TABLES}
    size = sum(file.bytes for file in files)
    for table in known:
        held = [file for file in table.list_files() if f"/{prefix_files(run)}" in file.path]
        rows[table.name] = sum(file.rows for file in held)
        size += sum(file.bytes for file in held)
    return rows, size
