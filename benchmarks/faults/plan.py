"""What a run is to do."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """At least one of `times`, `minutes` and `jobs` ends it."""

    faults: tuple[str, ...]
    times: int | None = None
    """So many faults; with `jobs` spread over them, else one `every` so many seconds."""
    minutes: float | None = None
    jobs: int | None = None
    """None: published as long as things are broken."""
    every: float = 3.0
    workers: int = 3
    claimers: int = 1
    concurrency: int = 8
    seconds: float = 0.002
    """That a job takes, on average."""
    lease_duration: float = 2.0
    hold: float = 1.5
    """Seconds that a fault lasts, about."""
    keys: int = 0
    """Of an exclusive consumer; 0: jobs have none."""
    frozen: float | None = None
    """Leases that a stop lasts; None: 0.5 to 2.5."""
    older: Path | None = None
    """The tree of an older release: every other worker is of it, and a publisher beside ours."""
    broken: str = ""
    seed: int | None = None

    @property
    def worker_flags(self) -> tuple[str, ...]:
        return ("--concurrency", str(self.concurrency))
