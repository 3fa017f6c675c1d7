"""Release the jobs that a stopped query of Spark holds.

If the checkpoint is given, jobs that the query had finished are delivered first.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="the query's name: CHANNEL/CONSUMER")
    parser.add_argument("--checkpoint", metavar="DIRECTORY", help="checkpoint of the query")


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import consuming

    released = consuming.release(options["stream"], options["checkpoint"])
    return CommandResult.from_facts({"stream": options["stream"], **released})
