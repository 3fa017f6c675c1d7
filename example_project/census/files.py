"""The Python code of this machine."""

import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

PLACES: Final = ("stdlib", "platstdlib", "purelib", "platlib")


def python_files(limit: int | None = None) -> list[Path]:
    """The interpreter's library, then its site-packages; sorted, each file once."""
    return list(islice(dict.fromkeys(_all()), limit))


def _all() -> Iterator[Path]:
    for place in PLACES:
        root = Path(sysconfig.get_path(place)).resolve()
        yield from sorted(path for path in root.rglob("*.py") if path.is_file())
