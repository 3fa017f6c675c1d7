"""How far a stopped query is by its own account: what is in its log of commits is done."""

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from pulljobs.errors import ConfigurationError

OFFSETS_FROM: Final = 2
"""Lines of a file of offsets: the version, what Spark notes of the batch, then each source."""


def done(checkpoint: str) -> tuple[str, int] | None:
    """The stream and its last batch that Spark is done with; None: there is none yet.

    ConfigurationError for a place that is no directory of this machine.
    """
    directory = _local(checkpoint)
    numbers = [int(one.name) for one in (directory / "commits").glob("*") if one.name.isdecimal()]
    if not numbers:
        return None
    lines = (directory / "offsets" / str(max(numbers))).read_text("utf-8").splitlines()
    offset = json.loads(lines[OFFSETS_FROM])
    return offset["stream"], int(offset["seq"])


def _local(checkpoint: str) -> Path:
    place = urlsplit(checkpoint)
    if place.scheme not in ("", "file"):
        raise ConfigurationError(f"{checkpoint!r} can't be read from here: it is not a directory.")
    directory = Path(unquote(place.path) if place.scheme else checkpoint)
    if not directory.is_dir():
        raise ConfigurationError(f"There is no checkpoint in {checkpoint!r}.")
    return directory
