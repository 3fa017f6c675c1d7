"""`manage.py runpullworker`: run the handlers of this project."""

import sys
from argparse import ArgumentParser
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pulljobs import handlers
from pulljobs.checks import out_of_order
from pulljobs.conf import Settings, settings
from pulljobs.errors import ConfigurationError
from pulljobs.worker.child import Order
from pulljobs.worker.supervisor import Supervisor

FLAGS: Final = {
    "CONCURRENCY": "threads that run handlers",
    "ASYNC_CONCURRENCY": "async handlers that run at once",
    "FETCH_BATCH": "jobs of one claim at the most",
    "MAX_HELD": "jobs claimed and not yet settled at the most",
    "MIN_FETCH_INTERVAL": "seconds between full fetches",
    "MAX_FETCH_INTERVAL": "seconds between polls that find nothing",
    "FLUSH_INTERVAL": "seconds between flushes",
    "FLUSH_SIZE": "outcomes that are flushed at once",
    "REAP_INTERVAL": "seconds between looks at leases that are over",
    "GRACEFUL_TIMEOUT": "seconds that running handlers get after SIGTERM",
}


class Command(BaseCommand):
    help = "Pull jobs and run their handlers, until SIGTERM or SIGINT; a second one exits at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--only",
            nargs="+",
            default=[],
            metavar="CHANNEL[/CONSUMER]",
            help="serve these only; all that have a handler by default",
        )
        parser.add_argument(
            "--burst", action="store_true", help="stop once nothing is ready and nothing is held"
        )
        for name, text in FLAGS.items():
            default = getattr(settings(), name)
            kind = float if isinstance(default, timedelta) else int
            parser.add_argument(f"--{name.lower().replace('_', '-')}", type=kind, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            handlers.autodiscover()
            handlers.serving(options["only"])
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        limits = _limits(options)
        if problems := out_of_order(limits):
            raise CommandError(" ".join(str(problem.msg) for problem in problems))
        connections.close_all()
        order = Order(
            node_id=uuid4(),
            limits=limits,
            only=tuple(options["only"]),
            burst=options["burst"],
        )
        sys.exit(Supervisor(order).run())


def _limits(options: dict[str, Any]) -> Settings:
    given = {name: options[name.lower()] for name in FLAGS if options.get(name.lower()) is not None}
    for name, value in given.items():
        if isinstance(getattr(settings(), name), timedelta):
            given[name] = timedelta(seconds=value)
    return replace(settings(), **given)
