"""What is known of a peer before it runs."""

from dataclasses import dataclass
from enum import StrEnum


class Runtime(StrEnum):
    OURS = "ours"
    """The interpreter that runs the benchmark."""
    PYTHON = "Python"
    NODE = "Node"


@dataclass(frozen=True, kw_only=True)
class Peer:
    name: str
    runtime: Runtime
    packages: tuple[str, ...] = ()
    """What pip or npm installs; the first is the peer itself."""
    adapter: str
    """A script in `adapters/`."""
    left: str
    """SQL: how many published jobs the database does not know as done."""
    settings: str
    """How it is set up, and where its authors say so."""
    history: str
    """What is left in the database of a job that went well."""
    holds: str
    """What a worker has of a job while it runs, and what frees it after a crash."""
    fan_out: str
    acks: str
    retries: str
