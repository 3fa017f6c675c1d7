"""Account of the operating system that runs the server: PostgreSQL refuses to run as root."""

import os
import pwd
import subprocess
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from example_project.postgres.errors import EmbeddedPostgresError


@dataclass(frozen=True)
class Account:
    """Account that runs PostgreSQL's commands. If `uid` is None, it is that of this process."""

    uid: int | None = None
    gid: int | None = None

    def own(self, directory: Path) -> None:
        """Create a directory that belongs to the account and is closed to all others."""
        directory.mkdir(mode=0o700, exist_ok=True)
        directory.chmod(0o700)
        if self.uid is not None and self.gid is not None:
            os.chown(directory, self.uid, self.gid)

    def run(self, *command: str | PathLike[str], fds: tuple[int, ...] = (), text: str = "") -> str:
        """Run a command as the account, and return its output.

        The command inherits the file descriptors `fds`, and reads `text` from standard input. Raise
        EmbeddedPostgresError with the end of the output if it fails.
        """
        try:
            done = subprocess.run(
                command,
                user=self.uid,
                group=self.gid,
                extra_groups=None if self.uid is None else [],
                cwd="/",
                # The caller's PGPORT, PGDATA and the like must not reach the server.
                env={"PATH": os.defpath, "LC_ALL": "C"},
                input=text,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=fds,
                text=True,
                umask=0o077,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL's {Path(command[0]).name} failed: {error.output[-500:]}"
            ) from None
        return done.stdout

    def reaches(self, path: Path) -> bool:
        """Return True if the account can execute the file, or enter the directory, at the path."""
        try:
            self.run("/bin/sh", "-c", 'test -x "$0"', path)
        except EmbeddedPostgresError:
            return False
        return True


def server_account(data: Path) -> Account:
    """Return the account that runs the server: that of this process, unless it is root.

    For root it is the owner of the data, or the system account `nobody` if there is no data yet.
    """
    if os.geteuid() != 0:
        return Account()
    owner = data.stat().st_uid if data.exists() else 0
    try:
        entry = pwd.getpwuid(owner) if owner else pwd.getpwnam("nobody")
    except KeyError:
        raise EmbeddedPostgresError(
            "PostgreSQL does not run as root and there is no user `nobody` to run it: "
            "run this command as an ordinary user, or set DATABASE_URL to a server of yours."
        ) from None
    return Account(entry.pw_uid, entry.pw_gid)
