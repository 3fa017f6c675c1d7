"""Choice of the directories of a cluster: with the project's state, if the server can use those."""

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from example_project.postgres.account import Account, server_account

PORT = 5432
# The kernel's limit for a socket's path (macOS has the shorter one), less the socket's own name.
SOCKET_DIRECTORY_LIMIT = 103 - len(f"/.s.PGSQL.{PORT}")
# pg_ctl puts paths in a shell command, libpq takes a comma for a list of hosts.
SAFE_PATH = re.compile(r"[\w./+~ -]+")
LASTING = ("/var/lib", "~/.local/state")
"""Candidates for the parent of the data."""
# Systems may delete files here that are a month old.
AGED = ("/var/tmp",)
"""Candidates where the system may delete files that are a month old."""


@dataclass(frozen=True)
class Place:
    """Directories of a cluster, and the account of its server."""

    home: Path
    """Directory of the data, its locks, and a copy of programs that are closed to the server."""
    run: Path
    """Directory of the socket and the log."""
    account: Account

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def log(self) -> Path:
        return self.run / "server.log"

    @property
    def socket(self) -> Path:
        return self.run / f".s.PGSQL.{PORT}"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"


def place_in(state: Path) -> Place:
    """Choose the directories for the state directory `state`, and create what is missing.

    They are inside of it if possible. Otherwise they are elsewhere, and pointers in `state` have
    their paths.
    """
    home = _recorded(state / "home") or state
    account = server_account(home / "data")
    if not _is_open(home, account):
        home = _elsewhere(state / "home", _parent(LASTING + AGED, account))
    run = (_recorded(state / "run") or home) / "run"
    if len(os.fsencode(run)) > SOCKET_DIRECTORY_LIMIT:
        shutil.rmtree(state / "run", ignore_errors=True)  # left from a shorter path
        run = _elsewhere(state / "run", _parent(AGED, account)) / "run"
    account.own(run)
    return Place(home, run, account)


def _is_open(directory: Path, account: Account) -> bool:
    return bool(SAFE_PATH.fullmatch(str(directory))) and account.reaches(directory)


def _parent(candidates: tuple[str, ...], account: Account) -> Path:
    """Return the first candidate that this process can write to and the server's account can enter.

    The directory for temporary files is the last resort.
    """
    for parent in map(Path, map(os.path.expanduser, candidates)):
        if os.access(parent, os.W_OK) and _is_open(parent, account):
            return parent
    return Path(tempfile.gettempdir())


def _recorded(pointer: Path) -> Path | None:
    """Return the directory that a pointer names.

    Return None if there is no pointer, or if the directory was deleted or belongs to another user
    or pointer.
    """
    if not pointer.is_file():
        return None
    directory = Path(pointer.read_text())
    ours = directory.is_dir() and directory.lstat().st_uid == os.geteuid()
    return directory if ours and _takes(pointer, directory) else None


def _takes(pointer: Path, directory: Path) -> bool:
    """Return True if the directory belongs to this pointer, and record that it does.

    If the state directory was copied with its pointer, the directory belongs to the original.
    """
    record = directory / "pointer"
    holder = Path(record.read_text()) if record.exists() else None
    if holder and holder.is_file() and holder.read_text() == str(directory):
        return holder.samefile(pointer)
    record.write_text(str(pointer))
    return True


def _elsewhere(pointer: Path, parent: Path) -> Path:
    """Make a directory under `parent` with a pointer to it, and return it.

    Every account can enter it, and only the account of this process can write to it.
    """
    directory = Path(tempfile.mkdtemp(prefix="pulljobs-", dir=parent))
    directory.chmod(0o711)
    (directory / "pointer").write_text(str(pointer))
    pointer.write_text(str(directory))
    return directory
