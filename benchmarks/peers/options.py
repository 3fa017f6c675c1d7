"""Options of `python -m benchmarks peers`."""

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """Add the command to the result of `add_subparsers`."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "peers", help="pulljobs compared with other queues on PostgreSQL"
    )
    parser.set_defaults(module="benchmarks.peers.session")
    parser.add_argument("--peers", type=_names, metavar="A,B", help="names of peers; default: all")
    parser.add_argument("--jobs", type=int, default=30_000, help="queued for each drain")
    parser.add_argument("--rounds", type=int, default=3, help="0 measures only the held snapshots")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--handlers", nargs="+", choices=["noop", "1ms"], default=["noop", "1ms"])
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[10, 500], help="jobs a second of the latencies"
    )
    _add_times(parser)
    parser.add_argument(
        "--held-together",
        type=int,
        default=3,
        help="peers under load at the same time",
    )
    parser.add_argument(
        "--json", metavar="FILE", help="file of the record; default: in the state directory"
    )
    parser.add_argument("--resume", action="store_true", help="measure only what the record lacks")
    parser.add_argument("--output", metavar="FOLDER", help="folder for the page and its chart")


def _add_times(parser: argparse.ArgumentParser) -> None:
    times = {
        "publish-seconds": (3.0, "longest round of publishing; 0 skips publishing"),
        "drain-seconds": (5.0, "longest drain"),
        "latency-seconds": (5.0, "length of a round of latencies; 0 skips them"),
        "held-seconds": (180.0, "time for which a snapshot is held; 0 skips that"),
        "held-rate": (200.0, "jobs a second offered while a snapshot is held"),
    }
    for name, (default, help) in times.items():
        parser.add_argument(f"--{name}", type=float, default=default, help=help)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
