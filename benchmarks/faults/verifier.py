"""Runs of `manage.py pulljobs verify` during the load, which must find nothing."""

import json
import threading
from types import TracebackType
from typing import Any, Final

from benchmarks.faults.processes import Processes

COMMAND: Final = ("django", "pulljobs", "--json", "verify", "--rows", "20000", "--patience", "3")


class Verifier:
    """Thread that runs `verify` again and again inside the `with` block."""

    def __init__(self, processes: Processes, pause: float) -> None:
        """`pause` is the number of seconds between two runs."""
        self.complaints: list[str] = []
        self._processes, self._pause, self._over = processes, pause, threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> "Verifier":
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def verify(self) -> bool:
        """Run `verify` once, keep what it finds, and return False if a fault prevented the run."""
        done = self._processes.run_to_end(*COMMAND)
        report: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        for name, broken in report.get("broken", {}).items():
            self.complaints.append(f"verify: {broken['count']} break {name}: {broken['ids'][:3]}")
        return bool(report)

    def _watch(self) -> None:
        while not self._over.wait(self._pause):
            self.verify()
