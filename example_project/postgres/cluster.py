"""Creation of a cluster (the data of a server), start of the server, and check that it answers."""

import os
import shlex
import shutil
import socket
from pathlib import Path

from example_project.postgres.place import PORT, Place

NAME = "pulljobs"
LOG_BYTES = 8_000_000
"""Size of the server's log above which a start begins a new log."""
# Written once to postgresql.conf of the cluster: to change settings of an old cluster, edit that.
SETTINGS = {
    "max_connections": "200",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}


def is_up(place: Place) -> bool:
    """Return True if the server accepts connections, and not only listens while it starts."""
    with socket.socket(socket.AF_UNIX) as client:
        if client.connect_ex(str(place.socket)):
            return False
    try:
        return place.pid_file.read_text().splitlines()[7].strip() == "ready"
    except (FileNotFoundError, IndexError):
        return False


def create(place: Place, programs: Path, version: int) -> None:
    """Create the data directory with an empty database.

    It is made as a draft and renamed, so that a crash leaves a draft that the next try discards.
    """
    draft = place.home / "data.new"
    # Unsynced, for speed: a power cut in the first seconds loses a database that is empty.
    shutil.rmtree(draft, ignore_errors=True)
    place.account.own(draft)
    locale = ["--locale=C"]
    if version >= 17:
        locale += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
    settings = [part for name, value in SETTINGS.items() for part in ("-c", f"{name}={value}")]
    identity = ["--username", NAME, "--auth=trust", "--encoding=UTF8"]
    place.account.run(programs / "initdb", "--no-sync", *identity, *locale, *settings, "-D", draft)
    single: list[str | Path] = [
        "--single",
        "-c",
        "fsync=off",
        "-c",
        "shared_buffers=16MB",
        "-D",
        draft,
        "postgres",
    ]
    place.account.run(programs / "postgres", *single, text=f"CREATE DATABASE {NAME};\n")
    draft.rename(place.data)


def start(place: Place, programs: Path, server_lock: int) -> None:
    """Start the server, without waiting until it is up.

    The server and its children inherit the file descriptor `server_lock`, so that the lock is held
    as long as any of them lives, and no second server starts.
    """
    for left_over in (place.pid_file, place.socket, place.run / f"{place.socket.name}.lock"):
        left_over.unlink(missing_ok=True)
    if place.log.exists() and place.log.stat().st_size > LOG_BYTES:
        place.log.replace(place.log.with_suffix(".log.old"))
    place.account.run(
        programs / "pg_ctl", "start", "--silent", "--no-wait",
        "-D", place.data, "-l", place.log, "-o", shlex.join(_options(place)),
        fds=(server_lock,),
    )  # fmt: skip


def _options(place: Place) -> list[str]:
    """Return options of the server, by which it listens on a socket and not on a network."""
    options = {
        "listen_addresses": "",
        "port": str(PORT),
        "unix_socket_directories": f'"{place.run}"',
    }
    if os.environ.get("PULLJOBS_POSTGRES_FSYNC") == "off":
        options["fsync"] = "off"
    return [part for name, value in options.items() for part in ("-c", f"{name}={value}")]
