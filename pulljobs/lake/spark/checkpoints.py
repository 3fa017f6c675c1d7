"""Progress of a stopped streaming query, read from the files of its checkpoint.

Spark writes the number and offset of a batch to the log of offsets when the batch begins, and the
number to the log of commits when it is done.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import pyarrow as pa
from pyarrow import fs

from pulljobs.errors import ConfigurationError
from pulljobs.lake.locations import normalize_location
from pyspark_pulljobs.filesystems import open_location

OFFSETS_FROM: Final = 2
"""Index of the first line with an offset, after the version and Spark's metadata."""
ENTRIES: Final = frozenset({"metadata", "offsets", "commits"})
"""Entries of a checkpoint, of which `metadata` is there from the start of the query."""
Offset = dict[str, object]


def read_done(checkpoint: str) -> Offset | None:
    """Return the offset at the end of the last batch that is done, or None if none is.

    Raise ConfigurationError without a checkpoint of such a query that this process can read.
    """
    return _read_last(checkpoint, "commits")


def read_begun(checkpoint: str) -> Offset | None:
    """Return the offset at the end of the last batch that has begun, or None if none has.

    Raise ConfigurationError like `read_done`.
    """
    return _read_last(checkpoint, "offsets")


def exists(checkpoint: str) -> bool:
    """Return True if the checkpoint exists, or raise ConfigurationError if it cannot be read."""
    with _raising_configuration_errors(checkpoint):
        return _is_checkpoint(_open_checkpoint(checkpoint))


def _read_last(checkpoint: str, log: str) -> Offset | None:
    with _raising_configuration_errors(checkpoint):
        filesystem = _open_checkpoint(checkpoint)
        if not _is_checkpoint(filesystem):
            raise ConfigurationError(f"There is no checkpoint in {checkpoint!r}.")
        entries = filesystem.get_file_info(fs.FileSelector(log, allow_not_found=True))
        numbers = [int(entry.base_name) for entry in entries if entry.base_name.isdecimal()]
        if not numbers:
            return None
        with filesystem.open_input_stream(f"offsets/{max(numbers)}") as file:
            return _parse_offset(file.read().decode(), checkpoint)


def _parse_offset(text: str, checkpoint: str) -> Offset:
    """Return the offset in a file of the log of offsets.

    Raise ConfigurationError if it is of another source, whose offsets have other forms.
    """
    with suppress(IndexError, ValueError):
        offset = json.loads(text.splitlines()[OFFSETS_FROM])
        if isinstance(offset, dict):
            return offset
    raise ConfigurationError(
        f"{checkpoint!r} is the checkpoint of a query over another source: name that of the stream."
    )


def _open_checkpoint(checkpoint: str) -> fs.FileSystem:
    try:
        location = normalize_location(checkpoint)
    except ConfigurationError:
        raise OSError("the scheme of this URL is not known") from None
    return open_location(location)


def _is_checkpoint(filesystem: fs.FileSystem) -> bool:
    """Return True if the directory has an entry that Spark makes in a checkpoint."""
    entries = filesystem.get_file_info(fs.FileSelector("", allow_not_found=True))
    return any(entry.base_name in ENTRIES for entry in entries)


@contextmanager
def _raising_configuration_errors(checkpoint: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        line = str(error).partition("\n")[0]
        raise ConfigurationError(f"{checkpoint!r} cannot be read from here: {line}") from error
