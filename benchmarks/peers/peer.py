"""Description of a queue with which pulljobs is compared (peer)."""

from dataclasses import dataclass
from enum import StrEnum


class Runtime(StrEnum):
    """Interpreter of an adapter, the script by which the benchmark drives a compared queue."""

    OURS = "ours"
    """Interpreter of the benchmark."""
    PYTHON = "Python"
    NODE = "Node"


@dataclass(frozen=True, kw_only=True)
class Installable:
    """Software to compare with, and the script that drives it."""

    name: str
    runtime: Runtime
    packages: tuple[str, ...] = ()
    """Packages for pip or npm. The first is the compared queue itself."""
    python: tuple[int, int] = (3, 11)
    """Oldest Python that the packages support."""
    adapter: str
    """Script in `adapters/` that drives the software."""


@dataclass(frozen=True, kw_only=True)
class Peer(Installable):
    """Queue to compare with, its set-up and its guarantees."""

    left: str
    """Statement that counts the published jobs that are not done."""
    settings: str
    """Settings that differ from the defaults."""
    history: str
    """Rows that a successful job leaves in the database, as text for the page."""
    holds: str
    """Claim of a worker on a running job, and what ends it after a crash."""
    fan_out: str
    acks: str
    retries: str
