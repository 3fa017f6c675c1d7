"""Files of runs: counts, and removal of files that are not in the log."""

from collections.abc import Iterable, Sequence

from pyarrow import fs

from pulljobs.lake.spark.tables import Table
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.writing import ExportedFile, prefix_files


def clean(unknown: Iterable[Table], run: int) -> None:
    """Remove the files of a run that are not in the log of these tables.

    Tasks of an interrupted run may still write. Later files of them stay until `lake vacuum`.
    """
    for table in unknown:
        selector = fs.FileSelector("", recursive=True, allow_not_found=True)
        for entry in table.filesystem.get_file_info(selector):
            if entry.base_name.startswith(prefix_files(run)):
                table.filesystem.delete_file(entry.path)


def sum_files(
    files: Sequence[ExportedFile], known: Iterable[Table], run: int
) -> tuple[dict[str, int], int]:
    """Return rows by table, and bytes, of the files written and of those already in the log."""
    rows = {name: sum(f.rows for f in files if f.table == name) for name in TABLES}
    size = sum(file.bytes for file in files)
    for table in known:
        held = [file for file in table.list_files() if f"/{prefix_files(run)}" in file.path]
        rows[table.name] = sum(file.rows for file in held)
        size += sum(file.bytes for file in held)
    return rows, size
