"""The options of `python -m benchmarks pipeline`."""

import argparse
from typing import Any, Final

PARTS: Final = ("export", "rollup", "publish", "consume")


def add_to(commands: Any) -> None:
    """`commands`: what `add_subparsers` returned."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "pipeline", help="rows a second of the pipeline on Spark, beside the same without it"
    )
    parser.set_defaults(module="benchmarks.pipeline.session")
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 5_000_000])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--most", type=int, default=5_000_000, help="jobs published, and consumed")
    parser.add_argument("--batch", type=int, default=25_000, help="jobs of one claim")
    parser.add_argument(
        "--rounds", type=int, default=3, help="of what is compared, in turns; medians count"
    )
    parser.add_argument(
        "--tasks", type=int, default=4, help="of Spark, and processes of ADBC alone"
    )
    parser.add_argument("--memory", default="4g", help="of the driver's JVM")
    parser.add_argument("--json", action="store_true", help="one line of JSON; tables go to stderr")
