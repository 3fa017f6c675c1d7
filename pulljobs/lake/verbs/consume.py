"""Run a pandas or Arrow function over a consumer's jobs, on Spark.

The function takes jobs as a pandas DataFrame or Arrow table. `pyspark_pulljobs.handling` explains
what it may return or raise. It runs in Spark's tasks, so it must be installed on the executors.
"""

from argparse import ArgumentParser
from typing import Any, Final

from pulljobs.management.parsing import LONGEST, number_between, whole_number
from pulljobs.management.subcommands import CommandResult

COUNT: Final = whole_number(1, 2**31 - 1)
"""Type of arguments that the data source takes as options, with the same bounds."""


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--channel", required=True, metavar="NAME", help="channel of the consumer")
    parser.add_argument("--consumer", required=True, metavar="NAME", help="its jobs are run")
    parser.add_argument(
        "--handler", required=True, metavar="MODULE:FUNCTION", help="function that handles them"
    )
    parser.add_argument(
        "--form", choices=["pandas", "arrow"], default="pandas",
        help="type of frame that the function takes (%(default)s)",
    )  # fmt: skip
    parser.add_argument("--stream", help="the query's name across restarts (CHANNEL/CONSUMER)")
    parser.add_argument(
        "--checkpoint", metavar="DIRECTORY",
        help="where Spark stores the progress of the query (_streams of PULLJOBS['LAKE'], or a "
        "temporary directory where Spark has no filesystem for the lake)",
    )  # fmt: skip
    parser.add_argument(
        "--batch", type=COUNT, default=10_000, metavar="JOBS", help="jobs of a batch (%(default)s)"
    )
    parser.add_argument("--partitions", type=COUNT, help="most tasks that share a batch")
    parser.add_argument(
        "--lease", type=COUNT, metavar="SECONDS", help="lease duration of a batch, which is renewed"
    )
    parser.add_argument(
        "--max-lease", type=COUNT, metavar="SECONDS", help="how long a batch may run (900)"
    )
    parser.add_argument(
        "--every", type=number_between("seconds", 0, LONGEST.total_seconds()), metavar="SECONDS",
        help="keep running, with a batch at this interval; by default end after the waiting jobs",
    )  # fmt: skip


def handle(**options: Any) -> CommandResult:
    from pulljobs.lake.spark import consuming, progress, session

    stream = options["stream"] or f"{options['channel']}/{options['consumer']}"
    consume_options = consuming.ConsumeOptions(
        channel=options["channel"],
        consumer=options["consumer"],
        handler=options["handler"],
        form=options["form"],
        stream=stream,
        checkpoint=options["checkpoint"] or "",
        every=options["every"],
        options=_source_options(options),
    )
    with (
        session.open_session("consume", master=options["master"], conf=options["conf"]) as spark,
        progress.reporting(spark, f"consume {stream}"),
    ):
        counts = consuming.run(spark, consume_options)
    return CommandResult.from_facts({"stream": stream, **counts})


def _source_options(options: dict[str, Any]) -> dict[str, str]:
    names = {
        "maxRowsPerBatch": options["batch"],
        "partitions": options["partitions"],
        "lease": options["lease"],
        "maxLease": options["max_lease"],
    }
    return {name: str(value) for name, value in names.items() if value is not None}
