"""Archive of the Python packages that Spark's tasks import, for executors without them."""

import os
import re
import sys
import tarfile
from collections import ChainMap
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.metadata import packages_distributions as find_distributions
from importlib.util import find_spec
from pathlib import Path, PurePath
from typing import Final, NamedTuple

from pulljobs.errors import ConfigurationError

OWN: Final = ("pulljobs", "pyspark_pulljobs")
ROOTS: Final = (
    "psycopg", "psycopg-binary", "pyarrow", "pandas", "adbc-driver-postgresql",
    "adbc-driver-manager", "deltalake",
)  # fmt: skip
"""Distributions that tasks import. Those that are not installed here are left out."""
OF_SPARK: Final = frozenset({"pyspark", "py4j", "pulljobs"})
"""Distributions that executors have already, and pulljobs, which is added by its packages."""
FOLDER: Final = "pulljobs-package"
"""Directory in which Spark unpacks the archive. Relative paths of tasks begin next to it."""
SUFFIXES: Final = (".tar.gz", ".tgz", ".tar")
LEFT_OUT: Final = frozenset({"tests", "__pycache__"})
"""Directories that no task imports from."""
REQUIREMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Members = dict[str, Path]
"""Files by their path in the archive."""


class Packaged(NamedTuple):
    file: Path
    bytes: int
    names: list[str]
    """Distributions with their versions, then modules without a version."""

    @property
    def properties(self) -> dict[str, str]:
        """Properties of Spark with which executors unpack the archive and import from it."""
        return {
            "spark.archives": f"{self.file}#{FOLDER}",
            "spark.executorEnv.PYTHONPATH": FOLDER,
        }


def package(file: Path, included: Iterable[str]) -> Packaged:
    """Write the archive to `file`: the packages of pulljobs, what they need, and `included`.

    `included` are distributions or modules that handlers need. Raise ConfigurationError for a name
    that is neither, for an unknown suffix, and if the file cannot be written.
    """
    if not file.name.endswith(SUFFIXES):
        raise ConfigurationError(f"{file} must end with {', '.join(SUFFIXES)}, as Spark asks.")
    names, members = _collect(included)
    draft = file.with_name(f"{file.name}.draft")
    try:
        _write(draft, members, is_compressed=file.suffix != ".tar")
        draft.replace(file)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise ConfigurationError(f"{file} cannot be written: {error}") from error
    return Packaged(file.resolve(), file.stat().st_size, names)


def _collect(included: Iterable[str]) -> tuple[list[str], Members]:
    """Return the names of the distributions and modules in the archive, and its files."""
    known: dict[str, Distribution] = {}
    modules = list(OWN)
    for root in filter(None, map(_find, ROOTS)):
        _add_required(root, known)
    for name in included:
        if (installed := _find_installed(name)) is None:
            modules.append(name.partition(".")[0] or name)
        else:
            _add_required(installed, known)
    parts = [*map(_list_installed, known.values()), *map(_list_module, modules)]
    versions = sorted(f"{installed.name} {installed.version}" for installed in known.values())
    return [*versions, *modules], dict(ChainMap(*parts))


def _write(file: Path, members: Members, *, is_compressed: bool) -> None:
    with _open(file, is_compressed=is_compressed) as archive:
        for name, path in sorted(members.items()):
            archive.add(path, name, recursive=False)


def _open(file: Path, *, is_compressed: bool) -> tarfile.TarFile:
    """Open a new archive for writing, with gzip level 1 if it is compressed.

    Higher levels would take a minute for a few percent.
    """
    return tarfile.open(file, "w:gz", compresslevel=1) if is_compressed else tarfile.open(file, "w")


def _add_required(installed: Distribution, known: dict[str, Distribution]) -> None:
    """Add the distribution to `known`, and those it requires that are installed, without extras."""
    if installed.name.lower() in OF_SPARK or installed.name in known:
        return
    known[installed.name] = installed
    for requirement in installed.requires or ():
        name = REQUIREMENT.match(requirement)
        if name and "extra ==" not in requirement and (needed := _find(name[0])) is not None:
            _add_required(needed, known)


def _find(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except (PackageNotFoundError, ValueError):  # the latter for an empty name
        return None


def _find_installed(name: str) -> Distribution | None:
    """Return the distribution of this name, or the one that has a module of this name.

    Return None if there is none, or if its files are elsewhere, as after an editable installation.
    """
    names = [name, *find_distributions().get(name, ())]
    candidates = filter(None, map(_find, names))
    return next((candidate for candidate in candidates if _list_modules(candidate)), None)


def _list_modules(installed: Distribution) -> Members:
    """Return the distribution's files of Python code. An editable installation has none."""
    return {
        name: path
        for name, path in _list_installed(installed).items()
        if path.suffix in (".py", ".so") and not name.startswith("__editable__")
    }


def _list_installed(installed: Distribution) -> Members:
    files = [file for file in installed.files or () if ".." not in file.parts and _is_needed(file)]
    return {str(file): Path(str(installed.locate_file(file))) for file in files}


def _list_module(name: str) -> Members:
    """Return the files of a top-level module or package of any origin.

    Raise ConfigurationError if it cannot be found.
    """
    spec = find_spec(name) if name.isidentifier() else None
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        raise ConfigurationError(
            f"There is no module or installed distribution {name!r}: correct --include."
        )
    if not spec.submodule_search_locations:
        return {Path(str(spec.origin)).name: Path(str(spec.origin))}
    folders = [Path(place) for place in spec.submodule_search_locations]
    return {f"{name}/{file}": folder / file for folder in folders for file in _walk(folder)}


def _walk(folder: Path) -> Iterator[PurePath]:
    for place, _folders, files in os.walk(folder):
        inner = Path(place).relative_to(folder)
        yield from (inner / file for file in files if _is_needed(inner / file))


def _is_needed(file: PurePath) -> bool:
    return not LEFT_OUT.intersection(file.parts)


def describe_python() -> str:
    """Return the version of Python and the platform on which the archive can be used."""
    return f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sys.platform}"
