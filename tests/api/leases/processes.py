"""The API served by uvicorn as a process, the way a site runs it."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

import httpx

from example_project.state import BASE_DIR
from tests.sessions import PATIENCE_SECONDS

STARTING_SECONDS = 6 * PATIENCE_SECONDS


@dataclass
class Site:
    process: subprocess.Popen[bytes]
    base: str

    def stop(self) -> int:
        """Stop the process by SIGTERM, as process supervisors do. Return the exit code."""
        self.process.terminate()
        return self.process.wait(PATIENCE_SECONDS)


@contextmanager
def site(environment: Mapping[str, str]) -> Iterator[Site]:
    """Start a server process, wait until it is ready, and kill it at the end if it still runs."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        command = [sys.executable, "-m", "uvicorn", "example_project.asgi:application"]
        flags = ["--fd", str(listening.fileno()), "--lifespan", "off", "--log-level", "warning"]
        process = subprocess.Popen(
            [*command, *flags],
            cwd=BASE_DIR,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "tests.api.leases.settings",
                **environment,
            },
            pass_fds=[listening.fileno()],
        )
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        assert httpx.get(f"{base}/readyz", timeout=STARTING_SECONDS).status_code == 200
        yield Site(process, base)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(PATIENCE_SECONDS)
