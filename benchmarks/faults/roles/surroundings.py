"""What a director tells the processes it starts, through their environment."""

import os
from functools import cache
from pathlib import Path
from typing import Final

from benchmarks.faults.history import Pen

HISTORY: Final = Path(os.environ["FAULTS_HISTORY"]) if "FAULTS_HISTORY" in os.environ else None
ROLE: Final = os.environ.get("FAULTS_ROLE", "")
LEASE: Final = float(os.environ.get("FAULTS_LEASE", "30"))
"""Seconds, of every consumer."""
CLOCK: Final = os.environ.get("FAULTS_CLOCK", "")
BREAK: Final = os.environ.get("FAULTS_BREAK", "")


@cache
def pen() -> Pen:
    """The one pen of this process."""
    if HISTORY is None:
        raise LookupError("FAULTS_HISTORY names no directory: only a director starts this.")
    return Pen(HISTORY, ROLE)
