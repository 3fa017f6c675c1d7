"""Standby server of the tests' embedded server, which follows it by streaming replication."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from django.db import connection

from example_project.postgres.account import server_account
from example_project.postgres.binaries import programs
from example_project.postgres.place import PORT, Place


@contextmanager
def serve_standby() -> Iterator[Path]:
    """Copy the server, run the copy as a standby, and yield the directory of its socket."""
    primary = Path(connection.get_connection_params()["host"])
    version = int(_ask("SHOW server_version_num")) // 10_000
    data = Path(_ask("SHOW data_directory"))
    account = server_account(data)
    home = Path(mkdtemp(prefix="pulljobs-standby-"))
    home.chmod(0o711)
    place = Place(home, home / "run", account)
    account.own(place.run)
    account.own(home / "data")
    binaries = programs(version, account, data.parent)
    user = connection.get_connection_params()["user"]
    source = ("--host", str(primary), "--port", str(PORT), "--username", user)
    try:
        account.run(
            binaries / "pg_basebackup", *source, "--pgdata", place.data, "--checkpoint=fast",
            "--write-recovery-conf", "--no-sync",
        )  # fmt: skip
        options = f"-c listen_addresses= -c port={PORT} -c unix_socket_directories={place.run}"
        start = ("start", "--silent", "-D", place.data, "-l", place.log, "-o", options)
        account.run(binaries / "pg_ctl", *start)
        yield place.run
    finally:
        account.run(binaries / "pg_ctl", "stop", "--silent", "-m", "immediate", "-D", place.data)
        shutil.rmtree(home)


def _ask(text: str) -> str:
    with connection.cursor() as cursor:
        cursor.execute(text)
        return str(cursor.fetchone()[0])
