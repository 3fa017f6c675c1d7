"""The Python code of this machine."""

import sysconfig
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Final

LIBRARY: Final = ("stdlib", "platstdlib")
PACKAGES: Final = ("purelib", "platlib")
NOT_LIBRARY: Final = {"site-packages", "dist-packages"}
"""In the library's directory are packages of other environments, too."""


def python_files(limit: int | None = None) -> list[Path]:
    """The interpreter's library, then its site-packages; sorted, each file once."""
    library = (path for path in _all(LIBRARY) if NOT_LIBRARY.isdisjoint(path.parts))
    return list(islice(dict.fromkeys(chain(library, _all(PACKAGES))), limit))


def _all(places: tuple[str, ...]) -> Iterator[Path]:
    for place in places:
        root = Path(sysconfig.get_path(place)).resolve()
        yield from sorted(path for path in root.rglob("*.py") if path.is_file())
