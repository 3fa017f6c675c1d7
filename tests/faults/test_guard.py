"""Processes of a run of faults end with the process that started them, even if that is killed."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from example_project.state import BASE_DIR
from tests.sessions import wait_until

DIRECTOR = """
import os, sys
from pathlib import Path
from benchmarks.faults.processes import Processes
folder = Path(sys.argv[1])
processes = Processes(folder, folder, lease_duration=1)
server = "http.server", "0", "--bind", "127.0.0.1"
process = processes.start("server", *server)
other = processes.guard.start(server, log=folder / "log", cwd=folder, environment=os.environ)
print(process.pid, other.pid, flush=True)
sys.stdin.read()
other.kill()
processes.end()
print(processes.guard.close(), flush=True)
"""


@pytest.mark.processes
@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "done"])
def test_no_process_outlives_its_director(tmp_path: Path, is_killed: bool) -> None:
    director = subprocess.Popen(
        [sys.executable, "-c", DIRECTOR, str(tmp_path)],
        cwd=BASE_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert director.stdout
    pids = [int(pid) for pid in director.stdout.readline().split()]
    assert all(map(is_alive, pids))
    if is_killed:
        director.kill()
    printed, _nothing = director.communicate()
    assert (director.returncode, printed) == ((-9, "") if is_killed else (0, "None\n"))
    try:
        wait_until(lambda: not any(map(is_alive, pids)))
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


def is_alive(pid: int) -> bool:
    """Return True if the process exists and is no zombie, which waits only for its new parent."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
