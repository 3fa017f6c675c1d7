"""List the partitions of messages and archive."""

from typing import Any

from pulljobs.conf import settings
from pulljobs.management.subcommands import Answer
from pulljobs.storage import partitions


def handle(**options: Any) -> Answer:
    using = settings().DATABASE
    return Answer.of(
        {
            table: [partition.name for partition in partitions.existing(using, table)]
            for table in partitions.PARTITIONED
        }
    )
