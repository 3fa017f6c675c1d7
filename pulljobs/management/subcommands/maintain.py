"""Create partitions ahead, and drop those older than PULLJOBS['RETENTION'].

It also deletes other outdated rows. Run it as the owner of the tables: for any other role the exit
code is 1, and only those rows are deleted.
"""

from dataclasses import replace
from typing import Any

from pulljobs import operating
from pulljobs.management.subcommands import CommandResult


def handle(**options: Any) -> CommandResult:
    upkeep = operating.maintain()
    result = CommandResult.from_facts(
        {
            "made": [partition.name for partition in upkeep.made],
            "dropped": [partition.name for partition in upkeep.dropped],
            "not_owned": list(upkeep.not_owned),
        }
    )
    return replace(result, exit_code=int(bool(upkeep.not_owned)))
