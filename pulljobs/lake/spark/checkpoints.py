"""Progress of a stopped query, read from its checkpoint.

Batches in its log of commits are done. Batches in its log of offsets had begun.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs.writing import open_location

OFFSETS_FROM: Final = 2
"""First line of a source in a file of offsets, after the version and Spark's metadata."""
Offset = dict[str, object]


def read_done(checkpoint: str) -> Offset | None:
    """Return the end of the last batch that is done, or None if there is none.

    Raise ConfigurationError if the checkpoint cannot be read from here.
    """
    return _read_last(checkpoint, "commits")


def read_begun(checkpoint: str) -> Offset | None:
    """Return the end of the last batch that the query began, or None if there is none."""
    return _read_last(checkpoint, "offsets")


def exists(checkpoint: str) -> bool:
    """Return True if the checkpoint exists, or raise ConfigurationError if it cannot be read."""
    with _raising_configuration_errors(checkpoint):
        filesystem, path = _open_checkpoint(checkpoint)
        return _is_directory(filesystem, path)


def _read_last(checkpoint: str, log: str) -> Offset | None:
    with _raising_configuration_errors(checkpoint):
        filesystem, path = _open_checkpoint(checkpoint)
        if not _is_directory(filesystem, path):
            raise ConfigurationError(f"There is no checkpoint in {checkpoint!r}.")
        entries = filesystem.get_file_info(fs.FileSelector(f"{path}/{log}", allow_not_found=True))
        numbers = [int(entry.base_name) for entry in entries if entry.base_name.isdecimal()]
        if not numbers:
            return None
        with filesystem.open_input_stream(f"{path}/offsets/{max(numbers)}") as file:
            lines = file.read().decode().splitlines()
    offset: Offset = json.loads(lines[OFFSETS_FROM])
    return offset


def _open_checkpoint(checkpoint: str) -> tuple[fs.FileSystem, str]:
    url = urlsplit(checkpoint)
    if url.scheme in ("", "file"):
        return fs.LocalFileSystem(), unquote(url.path) if url.scheme else checkpoint
    return open_location(
        checkpoint.replace("s3a://", "s3://", 1)
    )  # as Spark calls it, and as Arrow does


def _is_directory(filesystem: fs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)


@contextmanager
def _raising_configuration_errors(checkpoint: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        line = str(error).partition("\n")[0]
        raise ConfigurationError(f"{checkpoint!r} cannot be read from here: {line}") from error
