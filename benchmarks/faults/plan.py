"""Plan of a run of `python -m benchmarks faults`."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Load and faults of a run. One of `times`, `minutes`, `jobs` and `rounds` ends it."""

    faults: tuple[str, ...]
    times: int | None = None
    """Number of faults, spread over the `jobs`, or at intervals of `every` seconds."""
    minutes: float | None = None
    jobs: int | None = None
    """Number of jobs to publish, or None to publish as long as faults are injected."""
    every: float = 3.0
    workers: int = 3
    processes: int = 1
    """Child processes of each worker."""
    claimers: int = 1
    concurrency: int = 8
    seconds: float = 0.002
    """Average time of a job."""
    lease_duration: float = 2.0
    """Lease duration of the consumers in seconds."""
    hold: float = 1.5
    """Approximate length of a fault in seconds."""
    keys: int = 0
    """Number of keys, or 0 for jobs without keys."""
    slots: int = 0
    """Bound on the jobs of a key in flight, or 0 for none."""
    fair: bool = False
    """True if keys take turns."""
    by_key: bool = False
    """True if the rate holds for each key by itself."""
    claim_rate: str = ""
    """Rate of each consumer, such as 100/s, or empty for no rate."""
    window: bool = False
    """True if the rate counts in fixed windows."""
    group: bool = False
    """True if the consumers share the rate, and `in_flight`, in a group."""
    in_flight: int = 0
    """Bound on the jobs in flight of each consumer, or 0 for none."""
    costs: int = 1
    """Highest cost of a job. Costs are random from 1 on."""
    throttle: float = 0
    """Seconds for which some jobs throttle their consumer, or 0 for no throttles."""
    change: float = 0
    """Seconds between changes of the limits at run time, or 0 for none."""
    push: bool = False
    """True if a push consumer has jobs, too."""
    frozen: float | None = None
    """Length of a stop in lease durations, or None for 0.5 to 2.5."""
    older: Path | None = None
    """Tree of an older release, for every other worker and a second publisher."""
    rounds: int | None = None
    """Number of faults, one after the other and each followed by a pause of `every` seconds."""
    rate: float | None = None
    """Jobs to publish a second, or None to keep many queued."""
    clients: int = 0
    """Number of HTTP clients, which one server serves."""
    largest: int = 0
    """Largest payload in bytes, or 0 for payloads without padding."""
    locked: float = 60.0
    """Seconds for which rows are locked by a fault, if `rounds` is given."""
    broken: str = ""
    """Names of the breaks to install, separated by commas."""
    seed: int | None = None

    @property
    def is_exclusive(self) -> bool:
        """True if jobs of a key run one at a time, in order."""
        return bool(self.keys) and not (self.slots or self.fair or self.by_key)

    @property
    def worker_flags(self) -> tuple[str, ...]:
        """Flags of every `runpullworker`."""
        return ("--concurrency", str(self.concurrency), "--processes", str(self.processes))
