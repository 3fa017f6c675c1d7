"""Files that the census counts: the Python code that is installed on this machine."""

import sysconfig
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

LIBRARY: Final = ("stdlib", "platstdlib")
PACKAGES: Final = ("purelib", "platlib")
NOT_LIBRARY: Final = {"site-packages", "dist-packages"}
"""Folders in the library's directory with packages of other environments."""


def python_files(limit: int | None = None) -> list[Path]:
    """List the files of Python's library, then of its site-packages, sorted, at most `limit`."""
    library = (path for path in _all(LIBRARY) if NOT_LIBRARY.isdisjoint(path.parts))
    return list(islice(dict.fromkeys(chain(library, _all(PACKAGES))), limit))


def _all(places: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        root = Path(sysconfig.get_path(place)).resolve()
        yield from sorted(path for path in root.rglob("*.py") if path.is_file())
