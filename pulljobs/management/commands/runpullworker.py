"""Command `manage.py runpullworker`, the worker, which runs the handlers of a project."""

import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from io import StringIO
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandError
from django.db import connections

from pulljobs import handlers
from pulljobs.checks import out_of_order
from pulljobs.conf import SETTING, WORKER_CHECKS, Settings, settings
from pulljobs.diagnosis import serving
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import Handler
from pulljobs.management.parsing import LONGEST, parse_float, parse_size
from pulljobs.storage import schema
from pulljobs.worker import reloader, subscriptions
from pulljobs.worker.supervisor import Supervisor, ending_at_signals

FLAGS: Final = {
    "WORKER_ID": "name of this worker in lists and logs; by default its host",
    "PROCESSES": "child processes, each with its own threads and limits",
    "CONCURRENCY": "threads that run handlers",
    "ASYNC_CONCURRENCY": "async handlers that run concurrently",
    "PUSH_CONCURRENCY": "concurrent deliveries to push consumers",
    "FETCH_BATCH": "maximum number of jobs in one claim",
    "MAX_HELD": "maximum number of claimed jobs that are not settled",
    "MAX_HELD_BYTES": "bytes of their payloads beyond which no more are claimed, such as 64M",
    "MIN_FETCH_INTERVAL": "seconds between full fetches",
    "MAX_FETCH_INTERVAL": "seconds between polls of an empty queue",
    "FLUSH_INTERVAL": "seconds between writes of buffered outcomes",
    "FLUSH_SIZE": "buffered outcomes that are written at once",
    "REAP_INTERVAL": "seconds between searches for expired leases",
    "MAINTENANCE_INTERVAL": "seconds between checks of the partitions",
    "HEARTBEAT_INTERVAL": "seconds between heartbeats of this worker in the database",
    "GRACEFUL_TIMEOUT": "seconds that running handlers may continue after SIGTERM",
    "HANDLER_TIMEOUT": "seconds that a handler without a timeout of its own may run",
    "BACKOFF_AFTER": "consecutive failures after which a consumer is held back for a while",
    "BACKOFF_INITIAL": "half the seconds of the first such pause; failures double it; 0: none",
    "BACKOFF_MAX": "seconds of the longest such pause; 0: none",
    "MAX_JOBS": "jobs after which a child is replaced",
    "MAX_MEMORY": "resident memory at which a child is replaced, such as 512M",
    "HEALTH_PORT": "port of /livez, /readyz and /metrics; 0: a free port, which is logged",
    "HEALTH_HOST": "address of that port; loopback by default",
    "LIVENESS_TIMEOUT": "seconds after which a pass of a loop is hung and its child is replaced",
}

MAX_NAMED: Final = 10
"""Maximum number of consumers that the greeting names."""
SIZES: Final = ("MAX_HELD_BYTES", "MAX_MEMORY")
_TYPES: Final[dict[str, Any]] = {field.name: field.type for field in fields(Settings)}


class Command(BaseCommand):
    requires_system_checks = (WORKER_CHECKS,)
    """A worker serves no URLs: their checks load all pages, which takes half of the start."""
    help = "Pull jobs and run their handlers, until SIGTERM or SIGINT; a second one exits at once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--only",
            nargs="+",
            metavar="CHANNEL[/CONSUMER]",
            help="serve only these; by default all that have a handler, and all push consumers",
        )
        parser.add_argument(
            "--exclude",
            nargs="+",
            metavar="CHANNEL[/CONSUMER]",
            help="do not serve these, whatever --only names",
        )
        parser.add_argument(
            "--burst",
            action="store_true",
            default=None,
            help="stop when no job is ready and none is held",
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
            help="do not serve push consumers",
        )
        parser.add_argument(
            "--reload",
            action="store_true",
            help="restart when code changes, for development; running jobs finish first",
        )
        for name, help_text in FLAGS.items():
            unit = "SECONDS" if _TYPES[name] is timedelta else name.rpartition("_")[2]
            flag = f"--{name.lower().replace('_', '-')}"
            parser.add_argument(flag, type=_type_of(name), metavar=unit, help=help_text)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command. A signal before the supervisor runs is a regular stop, too."""
        with ending_at_signals():
            return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        limits = _limits(options)
        if options["reload"]:
            _begin_reloading()
        try:
            with schema.required():
                handlers.autodiscover()
                served = subscriptions.chosen_handlers(
                    limits.ONLY, limits.EXCLUDE, push=limits.PUSH
                )
        except ConfigurationError as error:
            raise CommandError(str(error)) from error
        if problems := [str(problem.msg) for problem in out_of_order(limits)] + _late_beats(limits):
            raise CommandError(" ".join(problems))
        connections.close_all()
        if options["verbosity"]:
            self._print(_greeting(limits, served))
        try:
            sys.exit(Supervisor(limits).run())
        except ConfigurationError as error:
            raise CommandError(str(error)) from error

    def _print(self, text: str) -> None:
        """Print a line. A worker whose stdout is closed, full or not read works all the same."""
        try:
            self.stdout.write(text)
            self.stdout.flush()
        except (OSError, AttributeError):  # Python has no stream for a closed stdout.
            sys.stdout = StringIO()  # Else the exit would fail to write the text.


def _late_beats(limits: Settings) -> list[str]:
    """Return an error if heartbeats are so rare that other processes count this worker as gone."""
    if serving.heartbeat_limit() > limits.HEARTBEAT_INTERVAL:
        return []
    seconds = limits.HEARTBEAT_INTERVAL.total_seconds()
    return [
        f"--heartbeat-interval {seconds:g} is too long: a node without a heartbeat for "
        f"{serving.heartbeat_limit().total_seconds():g} s counts as gone. Change "
        f"{SETTING}['HEARTBEAT_INTERVAL'] instead, for all processes."
    ]


def _greeting(limits: Settings, served: Sequence[Handler]) -> str:
    names = [f"{handler.channel}/{handler.consumer}" for handler in served] or ["push consumers"]
    by = f" as {limits.WORKER_ID}" if limits.WORKER_ID else ""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    processes = "1 process" if limits.PROCESSES == 1 else f"{limits.PROCESSES} processes"
    threads = "1 thread" if limits.CONCURRENCY == 1 else f"{limits.CONCURRENCY} threads"
    return f"Serving {', '.join(names[:MAX_NAMED])}{more}{by}: {processes} of {threads}."


def _begin_reloading() -> None:
    """Split `--reload` into two processes: one watches the code and starts the other, the worker.

    The call returns only in the worker. The watching process starts the worker again after each
    change, also if the worker ended with an error. It exits when the worker ends otherwise.
    """
    if reloader.is_worker():
        reloader.stop_with_watcher()
        return
    with suppress(Exception):  # The worker process reports errors in the code.
        handlers.autodiscover()
    connections.close_all()
    sys.exit(reloader.watch())


def parse_seconds(text: str) -> float:
    """Parse a number of seconds, positive or negative, of at most 100 years."""
    seconds = parse_float(text)
    if not abs(seconds) <= LONGEST.total_seconds():
        raise ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _type_of(name: str) -> Callable[[str], Any]:
    if name in SIZES:
        return parse_size
    expected = _TYPES[name]
    if expected is timedelta:
        return parse_seconds
    return str if expected is str else int


def _limits(options: dict[str, Any]) -> Settings:
    names = (*FLAGS, "ONLY", "EXCLUDE", "BURST", "ONCE", "PUSH")
    given = {name: options[name.lower()] for name in names if options.get(name.lower()) is not None}
    for name, value in given.items():
        if _TYPES[name] is timedelta:
            given[name] = timedelta(seconds=value)
    return replace(settings(), **given)
