"""Options of the benchmarks of the lake: `pipeline`, `small-files` and the like."""

import argparse
from typing import Any, Final

from benchmarks.flags import add_json

PARTS: Final = ("export", "rollup", "publish", "consume")


def add_to(commands: Any) -> None:
    """Add the commands to the result of `add_subparsers`."""
    _add_pipeline(commands)
    parser: argparse.ArgumentParser = commands.add_parser(
        "small-files", help="exports of one row, then compact and vacuum"
    )
    parser.set_defaults(module="benchmarks.pipeline.small_files")
    parser.add_argument("--exports", type=int, default=130)
    add_json(parser)
    _add_quiet_times(commands)
    _add_cluster_faults(commands)


def _add_pipeline(commands: Any) -> None:
    pipeline = commands.add_parser("pipeline", help="rows a second of the pipeline on Spark")
    pipeline.set_defaults(module="benchmarks.pipeline.session")
    pipeline.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000, 5_000_000])
    pipeline.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    pipeline.add_argument(
        "--most", type=int, default=5_000_000, help="largest size to publish and consume"
    )
    pipeline.add_argument("--batch", type=int, default=25_000, help="jobs of one claim")
    pipeline.add_argument(
        "--rounds", type=int, default=3, help="of each comparison; the table has medians"
    )
    pipeline.add_argument("--tasks", type=int, default=4, help="of Spark, and processes of ADBC")
    pipeline.add_argument("--memory", default="4g", help="of the driver's JVM")
    add_json(pipeline)


def _add_quiet_times(commands: Any) -> None:
    parser = commands.add_parser("quiet-times", help="cold commands of the lake, for few jobs")
    parser.set_defaults(module="benchmarks.pipeline.quiet_times")
    parser.add_argument("--jobs", type=int, default=8_600, help="as many as the demo has")
    add_json(parser)


def _add_cluster_faults(commands: Any) -> None:
    parser = commands.add_parser(
        "cluster-faults", help="a standalone cluster whose processes are killed"
    )
    parser.set_defaults(module="benchmarks.pipeline.cluster_faults")
    parser.add_argument("--rows", type=int, default=20_000, help="jobs of a round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kills", type=int, default=10, help="of the command's process group")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--pause", type=float, default=20.0,
        help="average seconds between kills of executors and workers; more on a slow machine",
    )  # fmt: skip
    parser.add_argument("--seed", type=int, help="of the random choices")
    add_json(parser)
