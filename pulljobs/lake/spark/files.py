"""Files of runs: moves to their days, counts, and removal of files that are not in the log."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import uuid4

from pyarrow import fs

from pulljobs.lake.spark.tables import Table
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.writing import ExportedFile, open_location

TEMPORARY: Final = "_tmp-run"
"""Prefix of folders that readers skip."""


def name_temporary(run: int) -> str:
    """Return a new folder name, because tasks of an interrupted run may still write."""
    return f"{TEMPORARY}{run}-{uuid4().hex[:8]}"


def move_files(table: Table, where: str, files: Sequence[ExportedFile], run: int) -> dict[str, str]:
    """Move files to their days, where readers of Parquet see them, and return new paths by old."""
    filesystem, root = open_location(where)
    names = {}
    for number, file in enumerate(sorted(files, key=lambda file: (file.day, file.slice))):
        folder = f"day={file.day.isoformat()}"
        # A new name, because an interrupted run may still be moving its files.
        names[file.path] = f"{folder}/{_prefix(run)}{uuid4().hex[:8]}-{number:04}.parquet"
        filesystem.create_dir(f"{root}/{table.name}/{folder}", recursive=True)
        filesystem.move(f"{root}/{file.path}", f"{root}/{table.name}/{names[file.path]}")
    return names


def _prefix(run: int) -> str:
    return f"run{run}-"


def clean(where: str, unknown: Iterable[Table], run: int) -> None:
    """Remove the files of a run that are not in the log."""
    remove_temporary(where)
    filesystem, root = open_location(where)
    for table in unknown:
        selector = fs.FileSelector(f"{root}/{table.name}", recursive=True, allow_not_found=True)
        for entry in filesystem.get_file_info(selector):
            if entry.base_name.startswith(_prefix(run)):
                filesystem.delete_file(entry.path)


def remove_temporary(where: str) -> None:
    filesystem, root = open_location(where)
    for entry in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        if entry.base_name.startswith(TEMPORARY):
            filesystem.delete_dir(entry.path)


def sum_files(
    files: Sequence[ExportedFile], known: Iterable[Table], run: int
) -> tuple[dict[str, int], int]:
    """Return rows by table, and bytes, of the files written and of those already in the log."""
    rows = {name: sum(f.rows for f in files if f.table == name) for name in TABLES}
    size = sum(file.bytes for file in files)
    for table in known:
        held = [file for file in table.list_files() if f"/{_prefix(run)}" in file.path]
        rows[table.name] = sum(file.rows for file in held)
        size += sum(file.bytes for file in held)
    return rows, size
