"""How far a stopped query is by its own account.

What is in its log of commits is done; what is in its log of offsets had begun.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from pyarrow import fs

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs.writing import place

OFFSETS_FROM: Final = 2
"""Lines of a file of offsets: the version, what Spark notes of the batch, then each source."""
Offset = dict[str, object]


def done(checkpoint: str) -> Offset | None:
    """Where the last batch ends that Spark is done with; None: there is none yet.

    ConfigurationError for a place that can't be read from here.
    """
    return _last(checkpoint, "commits")


def begun(checkpoint: str) -> Offset | None:
    """The same of the last batch that it began with."""
    return _last(checkpoint, "offsets")


def is_there(checkpoint: str) -> bool:
    """ConfigurationError for a place that can't be read from here."""
    with _told(checkpoint):
        filesystem, path = _place(checkpoint)
        return _is_directory(filesystem, path)


def _last(checkpoint: str, log: str) -> Offset | None:
    with _told(checkpoint):
        filesystem, path = _place(checkpoint)
        if not _is_directory(filesystem, path):
            raise ConfigurationError(f"There is no checkpoint in {checkpoint!r}.")
        found = filesystem.get_file_info(fs.FileSelector(f"{path}/{log}", allow_not_found=True))
        numbers = [int(one.base_name) for one in found if one.base_name.isdecimal()]
        if not numbers:
            return None
        with filesystem.open_input_stream(f"{path}/offsets/{max(numbers)}") as file:
            lines = file.read().decode().splitlines()
    offset: Offset = json.loads(lines[OFFSETS_FROM])
    return offset


def _place(checkpoint: str) -> tuple[fs.FileSystem, str]:
    url = urlsplit(checkpoint)
    if url.scheme in ("", "file"):
        return fs.LocalFileSystem(), unquote(url.path) if url.scheme else checkpoint
    return place(checkpoint.replace("s3a://", "s3://", 1))  # as Spark calls it, and as Arrow does


def _is_directory(filesystem: fs.FileSystem, path: str) -> bool:
    return bool(filesystem.get_file_info(path).type == fs.FileType.Directory)


@contextmanager
def _told(checkpoint: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        told = str(error).partition("\n")[0]
        raise ConfigurationError(f"{checkpoint!r} can't be read from here: {told}") from error
