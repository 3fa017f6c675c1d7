"""Keep the lake up to date until SIGTERM: a service in place of cron and single commands.

Exports and rollups run often. Once a day the service compares the days that are over, drops those
that are old enough and equal, joins small files and removes old ones. It starts Spark when a step
needs it, once for all steps.
"""

import signal
import threading
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

from pulljobs.lake.verbs.export import LEAST, LONGEST, add_payload_arguments, choose_options
from pulljobs.management.parsing import number_between
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--every", type=number_between("seconds", LEAST, LONGEST), metavar="SECONDS", default=60.0,
        help="pause between two exports (%(default)g)",
    )  # fmt: skip
    parser.add_argument(
        "--rollup-every", type=number_between("seconds", LEAST, LONGEST), metavar="SECONDS",
        default=300.0, help="pause between two rollups (%(default)g)",
    )  # fmt: skip
    add_payload_arguments(parser)


def handle(**options: Any) -> Iterator[CommandResult]:
    from pulljobs.lake.spark import session, watching

    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    opened = partial(session.open_session, "watch", master=options["master"], conf=options["conf"])
    with ExitStack() as stack:
        sessions = session.keep_session(opened, stack)
        steps = watching.plan_steps(
            sessions,
            choose_options(options),
            options["every"],
            options["rollup_every"],
            always_spark=session.has_master(options["master"]),
        )
        service = watching.LakeService(steps)
        while not stopped.is_set():
            for name, line in service.tick():
                yield CommandResult({"step": name, "done": line}, [f"{name}: {line}"])
                if stopped.is_set():
                    break
            stopped.wait(service.seconds)
