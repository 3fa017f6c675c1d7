"""`manage.py runpullworker`: run the handlers of this project."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pulljobs import handlers
from pulljobs.checks import out_of_order
from pulljobs.conf import Settings, settings
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import Handler
from pulljobs.management.parsing import LONGEST, number
from pulljobs.storage import schema
from pulljobs.worker import reloader, subscriptions
from pulljobs.worker.supervisor import Supervisor

FLAGS: Final = {
    "PROCESSES": "children, each with its own threads and limits",
    "CONCURRENCY": "threads that run handlers",
    "ASYNC_CONCURRENCY": "async handlers that run at once",
    "PUSH_CONCURRENCY": "deliveries to push consumers at once",
    "FETCH_BATCH": "jobs of one claim at the most",
    "MAX_HELD": "jobs claimed and not yet settled at the most",
    "MIN_FETCH_INTERVAL": "seconds between full fetches",
    "MAX_FETCH_INTERVAL": "seconds between polls that find nothing",
    "FLUSH_INTERVAL": "seconds between flushes",
    "FLUSH_SIZE": "outcomes that are flushed at once",
    "REAP_INTERVAL": "seconds between looks at leases that are over",
    "MAINTENANCE_INTERVAL": "seconds between looks at partitions",
    "HEARTBEAT_INTERVAL": "seconds between reports of this worker to the database",
    "GRACEFUL_TIMEOUT": "seconds that running handlers get after SIGTERM",
    "HANDLER_TIMEOUT": "seconds that a handler may run which sets no timeout of its own",
    "BACKOFF_AFTER": "failures in a row after which a consumer's jobs are left alone for a while",
    "BACKOFF_INITIAL": "seconds that are doubled for the first such while; 0: never",
    "BACKOFF_MAX": "seconds of the longest such while; 0: never",
    "MAX_JOBS": "jobs after which a child is replaced",
    "MAX_MEMORY": "resident memory at which a child is replaced, such as 512M",
    "HEALTH_PORT": "answer /livez, /readyz and /metrics there; 0: a free port, named in the log",
    "HEALTH_HOST": "the address for that; loopback by default",
    "LIVENESS_TIMEOUT": "seconds of one pass after which a loop is hung and its child replaced",
}

NAMED: Final = 10
"""Consumers that the first line names at the most."""
UNITS: Final = {"K": 2**10, "M": 2**20, "G": 2**30}
_TYPES: Final[dict[str, Any]] = {field.name: field.type for field in fields(Settings)}


class Command(BaseCommand):
    help = "Pull jobs and run their handlers, until SIGTERM or SIGINT; a second one exits at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--only",
            nargs="+",
            metavar="CHANNEL[/CONSUMER]",
            help="serve these only; all that have a handler or are pushed to by default",
        )
        parser.add_argument(
            "--burst",
            action="store_true",
            default=None,
            help="stop once nothing is ready and nothing is held",
        )
        parser.add_argument(
            "--once",
            action="store_true",
            default=None,
            help="claim once for each consumer, and stop",
        )
        parser.add_argument(
            "--no-push",
            action="store_const",
            const=False,
            dest="push",
            help="leave push consumers to others",
        )
        parser.add_argument(
            "--reload",
            action="store_true",
            help="start anew when code changes, for development: what runs is let end before",
        )
        for name, text in FLAGS.items():
            unit = "SECONDS" if _TYPES[name] is timedelta else name.rpartition("_")[2]
            flag = f"--{name.lower().replace('_', '-')}"
            parser.add_argument(flag, type=_kind(name), metavar=unit, help=text)

    def handle(self, *args: Any, **options: Any) -> None:
        limits = _limits(options)
        if options["reload"]:
            _begin_reloading()
        try:
            with schema.required():
                handlers.autodiscover()
                served = subscriptions.chosen_handlers(limits.ONLY, push=limits.PUSH)
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if problems := out_of_order(limits):
            raise CommandError(" ".join(str(problem.msg) for problem in problems))
        connections.close_all()
        if options["verbosity"]:
            self.stdout.write(_greeting(limits, served))
            self.stdout.flush()
        try:
            sys.exit(Supervisor(limits).run())
        except ConfigurationError as error:
            raise CommandError(str(error)) from error


def _greeting(limits: Settings, served: Sequence[Handler]) -> str:
    names = [f"{one.channel}/{one.consumer}" for one in served] or ["push consumers"]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    processes = "1 process" if limits.PROCESSES == 1 else f"{limits.PROCESSES} processes"
    threads = "1 thread" if limits.CONCURRENCY == 1 else f"{limits.CONCURRENCY} threads"
    return f"Serving {', '.join(names[:NAMED])}{more}: {processes} of {threads}."


def _begin_reloading() -> None:
    """Return in the process that works; the one that watches ends here, when that has ended."""
    if reloader.is_worker():
        reloader.stop_with_watcher()
        return
    with suppress(Exception):  # Whoever works will say what is wrong with the code.
        handlers.autodiscover()
    connections.close_all()
    sys.exit(reloader.watch())


def bytes_of(text: str) -> int:
    """Of a size such as 1024, 512M or 2G."""
    unit = UNITS.get(text[-1:].upper(), 1)
    try:
        return int(float(text[:-1] if unit > 1 else text) * unit)
    except (ValueError, OverflowError) as error:
        raise ArgumentTypeError(f"{text!r} is no size such as 1024, 512M or 2G") from error


def seconds_of(text: str) -> float:
    """Of a number of them; not of one that is no span."""
    seconds = number(text)
    if not abs(seconds) <= LONGEST.total_seconds():
        raise ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _kind(name: str) -> Callable[[str], Any]:
    if name == "MAX_MEMORY":
        return bytes_of
    expected = _TYPES[name]
    if expected is timedelta:
        return seconds_of
    return str if expected is str else int


def _limits(options: dict[str, Any]) -> Settings:
    names = (*FLAGS, "ONLY", "BURST", "ONCE", "PUSH")
    given = {name: options[name.lower()] for name in names if options.get(name.lower()) is not None}
    for name, value in given.items():
        if _TYPES[name] is timedelta:
            given[name] = timedelta(seconds=value)
    return replace(settings(), **given)
