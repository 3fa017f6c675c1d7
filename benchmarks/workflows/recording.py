"""Calls of steps, recorded by the processes in files outside of the database."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PARTS: Final = 2
"""Number of the effects that a run writes before its sleep."""
BOOKED: Final = PARTS
"""Number of the effect of the last step."""
CALLS: Final = "calls"


class StepCall(NamedTuple):
    """Call of the function of a step."""

    run: int
    name: str
    lease_token: str


def record_call(call: StepCall) -> None:
    """Append a call to the file of this process in one write."""
    path = Path(os.environ["PROOF_FOLDER"]) / f"{CALLS}-{os.getpid()}"
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"{json.dumps(call)}\n".encode())
    os.close(file)


def read_calls(folder: Path) -> Iterator[StepCall]:
    """Yield the calls of all processes."""
    for path in folder.glob(f"{CALLS}-*"):
        for line in path.read_text().splitlines():
            yield StepCall(*json.loads(line))
