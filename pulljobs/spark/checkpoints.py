"""How far a stopped query is by its own account.

What is in its log of commits is done; what is in its log of offsets had begun.
"""

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pulljobs.errors import ConfigurationError

OFFSETS_FROM: Final = 2
"""Lines of a file of offsets: the version, what Spark notes of the batch, then each source."""
Offset = dict[str, object]


def done(checkpoint: str) -> Offset | None:
    """Where the last batch ends that Spark is done with; None: there is none yet.

    ConfigurationError for a place that is no directory of this machine.
    """
    return _last(checkpoint, "commits")


def begun(checkpoint: str) -> Offset | None:
    """The same of the last batch that it began with."""
    return _last(checkpoint, "offsets")


def is_here(checkpoint: str) -> bool:
    """Whether it is a directory of this machine, and there."""
    directory = _path(checkpoint)
    return directory is not None and directory.is_dir()


def _last(checkpoint: str, log: str) -> Offset | None:
    directory = _local(checkpoint)
    numbers = [int(one.name) for one in (directory / log).glob("*") if one.name.isdecimal()]
    if not numbers:
        return None
    lines = (directory / "offsets" / str(max(numbers))).read_text("utf-8").splitlines()
    offset: Offset = json.loads(lines[OFFSETS_FROM])
    return offset


def _local(checkpoint: str) -> Path:
    directory = _path(checkpoint)
    if directory is None:
        raise ConfigurationError(f"{checkpoint!r} can't be read from here: it is not a directory.")
    if not directory.is_dir():
        raise ConfigurationError(f"There is no checkpoint in {checkpoint!r}.")
    return directory


def _path(checkpoint: str) -> Path | None:
    """None: elsewhere."""
    place = urlsplit(checkpoint)
    if place.scheme not in ("", "file"):
        return None
    return Path(unquote(place.path) if place.scheme else checkpoint)
