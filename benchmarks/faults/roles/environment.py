"""Environment variables by which a director configures its processes."""

import os
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.faults.history import HistoryWriter

HISTORY: Final = Path(os.environ["FAULTS_HISTORY"]) if os.environ.get("FAULTS_HISTORY") else None
ROLE: Final = os.environ.get("FAULTS_ROLE", "")
LEASE_DURATION: Final = float(os.environ.get("FAULTS_LEASE", "30"))
"""Lease duration of every consumer in seconds."""
CLOCK: Final = os.environ.get("FAULTS_CLOCK", "")
BREAK: Final = os.environ.get("FAULTS_BREAK", "")


@cache
def history_writer() -> HistoryWriter:
    """Return the history writer of this process."""
    if HISTORY is None:
        raise LookupError("FAULTS_HISTORY is not set: only a director starts this process.")
    return HistoryWriter(HISTORY, ROLE)
