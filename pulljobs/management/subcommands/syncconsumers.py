"""Make the rows that handlers name and the database lacks."""

from typing import Any

from pulljobs import handlers
from pulljobs.management.subcommands import Answer


def handle(**options: Any) -> Answer:
    handlers.autodiscover()
    rows = handlers.sync_consumers()
    return Answer.of({"consumers": [f"{row.channel.name}/{row.name}" for row in rows]})
