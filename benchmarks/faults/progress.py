"""Progress of a run, read from the growing histories because the database may be down."""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DELIVERED: Final = b'"DELIVERED"'


@dataclass
class Progress:
    """Count of the deliveries that the database confirmed, summed over the processes of a run."""

    directory: Path
    delivered: int = 0
    """Number of answers, with those that the break `flush` makes up."""
    moved_at: float = field(default_factory=time.monotonic)
    _read: dict[Path, int] = field(default_factory=dict)

    def update(self) -> int:
        """Read the new records and return the number of deliveries since the start."""
        before = self.delivered
        for file in self.directory.iterdir():
            with file.open("rb") as opened:
                opened.seek(self._read.get(file, 0))
                fresh = opened.read()
            whole = fresh.rfind(b"\n") + 1
            self._read[file] = self._read.get(file, 0) + whole
            self.delivered += fresh.count(DELIVERED, 0, whole)
        if self.delivered > before:
            self.moved_at = time.monotonic()
        return self.delivered

    @property
    def stalled_for(self) -> float:
        """Seconds since the last new delivery."""
        return time.monotonic() - self.moved_at
