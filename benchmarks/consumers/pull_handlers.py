"""Handlers that do nothing. The benchmark sets their number in an environment variable."""

import os
from typing import Final

from pulljobs.handlers import ClaimedJob, handler

VARIABLE: Final = "PULLJOBS_BENCHMARK_CONSUMERS"


def do_nothing(job: ClaimedJob) -> None:
    pass


for number in range(int(os.environ.get(VARIABLE, "0"))):
    handler(channel=f"many-{number}", consumer="plain")(do_nothing)
