"""Files of runs: moved to their days, counted, and removed where the log does not know them."""

from collections.abc import Iterable, Sequence
from typing import Final
from uuid import uuid4

from pyarrow import fs

from pulljobs.lake.spark.tables import Table
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.writing import File, place

TEMPORARY: Final = "_tmp-run"
"""How the names begin of folders that readers pass over."""


def temporary(run: int) -> str:
    """A folder of its own, for tasks of one that was cut off may still write."""
    return f"{TEMPORARY}{run}-{uuid4().hex[:8]}"


def moved(table: Table, where: str, files: Sequence[File], run: int) -> dict[str, str]:
    """Where the files went, by where they were: from now on plain readers of Parquet see them."""
    filesystem, root = place(where)
    names = {}
    for number, file in enumerate(sorted(files, key=lambda file: (file.day, file.slice))):
        folder = f"day={file.day.isoformat()}"
        # A name of its own, for one that was cut off may still be moving.
        names[file.path] = f"{folder}/{_prefix(run)}{uuid4().hex[:8]}-{number:04}.parquet"
        filesystem.create_dir(f"{root}/{table.name}/{folder}", recursive=True)
        filesystem.move(f"{root}/{file.path}", f"{root}/{table.name}/{names[file.path]}")
    return names


def _prefix(run: int) -> str:
    return f"run{run}-"


def clean(where: str, unknown: Iterable[Table], run: int) -> None:
    """Remove what a run left behind that the log does not know."""
    remove_temporary(where)
    filesystem, root = place(where)
    for table in unknown:
        selector = fs.FileSelector(f"{root}/{table.name}", recursive=True, allow_not_found=True)
        for found in filesystem.get_file_info(selector):
            if found.base_name.startswith(_prefix(run)):
                filesystem.delete_file(found.path)


def remove_temporary(where: str) -> None:
    filesystem, root = place(where)
    for found in filesystem.get_file_info(fs.FileSelector(root, allow_not_found=True)):
        if found.base_name.startswith(TEMPORARY):
            filesystem.delete_dir(found.path)


def sums(files: Sequence[File], known: Iterable[Table], run: int) -> tuple[dict[str, int], int]:
    """Rows by table, and bytes: of files just written, and of those that the log knew already."""
    rows = {name: sum(f.rows for f in files if f.table == name) for name in TABLES}
    size = sum(file.bytes for file in files)
    for table in known:
        held = [one for one in table.held() if f"/{_prefix(run)}" in one.path]
        rows[table.name] = sum(one.rows for one in held)
        size += sum(one.bytes for one in held)
    return rows, size
