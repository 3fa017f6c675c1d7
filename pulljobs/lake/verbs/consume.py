"""Run a pandas or Arrow function over a consumer's jobs, on Spark.

The function is named module:function and takes a frame of jobs; what it returns or raises is
explained in `pyspark_pulljobs.handling`. It runs in Spark's tasks, so it must be installed there.
"""

from argparse import ArgumentParser
from typing import Any

from pulljobs.management.parsing import LONGEST, amount
from pulljobs.management.subcommands import CommandResult


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--channel", required=True, metavar="NAME", help="of the consumer")
    parser.add_argument("--consumer", required=True, metavar="NAME", help="whose jobs are done")
    parser.add_argument(
        "--handler", required=True, metavar="MODULE:FUNCTION", help="what does them"
    )
    parser.add_argument(
        "--form", choices=["pandas", "arrow"], default="pandas",
        help="what the function takes (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--stream", help="the query's name across restarts (CHANNEL/CONSUMER)")
    parser.add_argument(
        "--checkpoint", metavar="DIRECTORY",
        help="where Spark keeps how far the query is (_streams of PULLJOBS['LAKE'])",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=int, default=10_000, metavar="JOBS", help="of one batch (%(default)s)"
    )
    parser.add_argument("--partitions", type=int, help="tasks that share a batch, at the most")
    parser.add_argument(
        "--lease", type=int, metavar="SECONDS", help="of a batch, renewed while it runs"
    )
    parser.add_argument(
        "--max-lease", type=int, metavar="SECONDS", help="how long a batch may run (900)"
    )
    parser.add_argument(
        "--every", type=amount("seconds", 0, LONGEST.total_seconds()), metavar="SECONDS",
        help="go on, with a batch so often; by default what is there is taken, and no more",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import consuming, progress, session

    stream = options["stream"] or f"{options['channel']}/{options['consumer']}"
    wanted = consuming.Consuming(
        channel=options["channel"],
        consumer=options["consumer"],
        handler=options["handler"],
        form=options["form"],
        stream=stream,
        checkpoint=options["checkpoint"] or consuming.default_checkpoint(stream),
        every=options["every"],
        options=_of_source(options),
    )
    with (
        session.opened("consume", master=options["master"], conf=options["conf"]) as spark,
        progress.shown(spark, f"consume {stream}"),
    ):
        counts = consuming.run(spark, wanted)
    return CommandResult.from_facts({"stream": stream, **counts})


def _of_source(options: dict[str, Any]) -> dict[str, str]:
    names = {
        "maxRowsPerBatch": options["batch"],
        "partitions": options["partitions"],
        "lease": options["lease"],
        "maxLease": options["max_lease"],
    }
    return {name: str(value) for name, value in names.items() if value is not None}
