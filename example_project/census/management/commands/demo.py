"""`manage.py demo`: a census of the Python code of this machine."""

import json
import signal
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, Final

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError

from example_project.census import repeats, runs
from example_project.census.check import problems
from example_project.census.files import python_files
from example_project.census.models import Run
from example_project.census.process import Worker, is_spark_installed, watch_lake
from example_project.census.progress import follow
from example_project.census.site import USER, Site, new_password
from example_project.census.summary import Summary, summarise
from pulljobs import handlers, operating
from pulljobs.management.parsing import parse_duration, whole_number

ENDINGS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED: Final = 130


class Command(BaseCommand):
    help = (
        "Take a census of the Python code of this machine: a message for every file, two consumers "
        "that work on each in another process, and a summary that adds up."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--limit", type=whole_number(0), help="number of files, all by default")
        parser.add_argument("--resume", action="store_true", help="continue the last run")
        parser.add_argument("--json", action="store_true", help="print the summary as a JSON line")
        parser.add_argument(
            "--check", action="store_true", help="compare with a plain loop over the same files"
        )
        parser.add_argument(
            "--serve", action="store_true", help="leave the admin and the worker running"
        )
        parser.add_argument(
            "--every",
            type=parse_duration,
            default="5m",
            metavar="TIME",
            help="with --serve: time after which the census is repeated (%(default)s)",
        )
        parser.add_argument(
            "--port",
            type=whole_number(0, 65_535),
            default=8000,
            help="port of --serve, if it is free",
        )
        parser.add_argument(
            "--no-lake",
            action="store_true",
            help="with --serve: do not run `lake watch`, which needs Spark",
        )
        parser.add_argument(
            "--concurrency", type=whole_number(1), default=8, help="threads of the worker"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        with _ended_by_signals():
            try:
                self._demo(options)
            except KeyboardInterrupt:
                raise CommandError(
                    "Stopped. `manage.py demo --resume` continues the run.",
                    returncode=INTERRUPTED,
                ) from None

    def _demo(self, options: dict[str, Any]) -> None:
        _prepare()
        with Worker(options["concurrency"]) as worker:
            run = _last_run() if options["resume"] else self._begin(options["limit"])
            follow(run, worker.keep)
            summary = summarise(run)
            self._write(summary, as_json=options["json"])
            if options["check"]:
                self._check(run, summary, undisturbed=not options["resume"] and not worker.restarts)
            if options["serve"]:
                self._serve(worker, options)

    def _report(self, text: str) -> None:
        """Write to standard error, without its usual colour: standard output is for the result."""
        self.stderr.write(text, style_func=str)

    def _begin(self, limit: int | None) -> Run:
        files = python_files(limit)
        run = runs.begin(files)
        self._report(f"Published {len(files):,} files: {run.jobs:,} jobs.")
        return run

    def _write(self, summary: Summary, *, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(summary.as_json()))
        else:
            self.stdout.write("\n".join(summary.as_text()))

    def _check(self, run: Run, summary: Summary, *, undisturbed: bool) -> None:
        self._report("Checking against a plain loop over the same files ...")
        sentences = problems(run, summary, undisturbed=undisturbed)
        if sentences:
            raise CommandError("\n".join(sentences))
        self._report("The plain loop agrees.")

    def _serve(self, worker: Worker, options: dict[str, Any]) -> None:
        every, with_lake = options["every"], not options["no_lake"] and is_spark_installed()
        with (
            watch_lake() if with_lake else nullcontext(),
            Site(options["port"], worker.keep) as site,
            repeats.repeated(every, options["limit"]),
        ):
            self._report(f"The census is repeated every {every}, by a schedule, as a batch.")
            if with_lake:
                self._report("`lake watch` exports it and makes rollups, which the admin shows.")
            self._report(f"{site.address}  user {USER}  password {new_password()}")
            self._report("The worker keeps running; Ctrl-C ends both.")
            try:
                site.serve_forever()
            except KeyboardInterrupt:
                self._report("Stopping.")


def _prepare() -> None:
    """Create tables, partitions, channels and consumers, and end what an earlier demo repeats."""
    call_command("migrate", verbosity=0, interactive=False)
    operating.maintain()
    handlers.autodiscover()
    handlers.sync_consumers()
    repeats.end()


def _last_run() -> Run:
    run = Run.objects.order_by("id").last()
    if run is None:
        raise CommandError("There is no run to resume: leave --resume out.")
    return run


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Raise KeyboardInterrupt on SIGINT, SIGTERM or SIGHUP, so that the block stops its worker."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in ENDINGS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
