"""`manage.py pulljobs ...`: what operators run by hand or from cron."""

import json
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any, Final

from django.core.management.base import BaseCommand

from pulljobs import handlers, operating, pulling
from pulljobs.conf import settings
from pulljobs.storage import partitions


def sync_consumers() -> dict[str, Any]:
    handlers.autodiscover()
    rows = handlers.sync_consumers()
    return {"consumers": [f"{row.channel.name}/{row.name}" for row in rows]}


def maintain() -> dict[str, Any]:
    upkeep = operating.maintain()
    return {
        "made": [partition.name for partition in upkeep.made],
        "dropped": [partition.name for partition in upkeep.dropped],
    }


def list_partitions() -> dict[str, Any]:
    using = settings().DATABASE
    return {
        table: [partition.name for partition in partitions.existing(using, table)]
        for table in partitions.PARTITIONED
    }


def reap() -> dict[str, Any]:
    given_back = 0
    while (jobs := pulling.reap()) is not None:
        given_back += jobs
    return {"given_back": given_back}


ACTIONS: Final[dict[str, tuple[Callable[[], dict[str, Any]], str]]] = {
    "syncconsumers": (sync_consumers, "make the rows that handlers name and the database lacks"),
    "maintain": (maintain, "make partitions ahead, and drop those past PULLJOBS['RETENTION']"),
    "partitions": (list_partitions, "list the partitions of messages and archive"),
    "reap": (reap, "give back what leases hold that are over, as every worker does"),
}


class Command(BaseCommand):
    help = "Upkeep of pulljobs."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--json", action="store_true", help="one line of JSON")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for name, (_function, text) in ACTIONS.items():
            actions.add_parser(name, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        function, _text = ACTIONS[options["action"]]
        answer = function()
        if options["json"]:
            self.stdout.write(json.dumps(answer))
            return
        for name, value in answer.items():
            shown = ", ".join(value) or "none" if isinstance(value, list) else value
            self.stdout.write(f"{name}: {shown}")
