"""Make partitions ahead, and drop those past PULLJOBS['RETENTION']."""

from typing import Any

from pulljobs import operating
from pulljobs.management.subcommands import Answer


def handle(**options: Any) -> Answer:
    upkeep = operating.maintain()
    return Answer.of(
        {
            "made": [partition.name for partition in upkeep.made],
            "dropped": [partition.name for partition in upkeep.dropped],
        }
    )
