"""Show everything about a channel, consumer, job or node.

    inspect channel orders
    inspect consumer orders/invoicing
    inspect job d3k2v1g0000a1b2c3d4g
    inspect node web-1:4711

Without a name it lists the channels, the consumers or the nodes that did not stop.
"""

from argparse import ArgumentParser
from importlib import import_module
from typing import Any, Final

from pulljobs.diagnosis import explain
from pulljobs.errors import ConfigurationError
from pulljobs.management import inspection
from pulljobs.management.subcommands import CommandResult

KINDS: Final = ("channel", "consumer", "job", "node")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("kind", choices=KINDS, metavar="KIND", help=f"one of {', '.join(KINDS)}")
    parser.add_argument(
        "name", nargs="?", metavar="NAME",
        help="name of a channel, CHANNEL/CONSUMER, id of a job as a number or as the API shows it, "
        "host:pid or id of a node",
    )  # fmt: skip


def handle(kind: str, name: str | None, **options: Any) -> CommandResult:
    module: Any = import_module(f"{inspection.__name__}.{kind}")
    if name is None:
        if kind == "job":
            raise ConfigurationError("The job id is missing: jobs are not listed.")
        listed: CommandResult = module.list_all()
        return listed
    inspected: CommandResult = module.inspect(explain.parse_job_id(name) if kind == "job" else name)
    return inspected
