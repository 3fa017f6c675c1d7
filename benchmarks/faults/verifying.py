"""`manage.py pulljobs verify`, run beside the load: it finds nothing there and harms nobody."""

import json
import threading
from types import TracebackType
from typing import Any, Final

from benchmarks.faults.processes import Cast

PAUSE: Final = 5.0
COMMAND: Final = ("django", "pulljobs", "--json", "verify", "--rows", "20000", "--patience", "3")


class Verifier:
    """Again and again while it is entered, and once more by `look`, when all is quiet."""

    def __init__(self, cast: Cast) -> None:
        self.complaints: list[str] = []
        self._cast, self._over = cast, threading.Event()
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

    def look(self) -> bool:
        """Whether it could: the server may be down, or somebody have a table locked."""
        done = self._cast.to_its_end(*COMMAND)
        told: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
        for name, broken in told.get("broken", {}).items():
            self.complaints.append(f"verify: {broken['count']} break {name}: {broken['ids'][:3]}")
        return bool(told)

    def _watch(self) -> None:
        while not self._over.wait(PAUSE):
            self.look()
