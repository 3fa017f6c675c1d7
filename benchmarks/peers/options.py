"""The options of `python -m benchmarks peers`."""

import argparse
from typing import Any


def add_to(commands: Any) -> None:
    """`commands`: what `add_subparsers` returned."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "peers", help="pulljobs beside other queues on PostgreSQL"
    )
    parser.set_defaults(module="benchmarks.peers.session")
    parser.add_argument(
        "--peers", type=_names, metavar="A,B", help="these only; all of them by default"
    )
    parser.add_argument("--jobs", type=int, default=30_000, help="queued for each drain")
    parser.add_argument(
        "--rounds", type=int, default=3, help="with 0 snapshots are held, and nothing else"
    )
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--handlers", nargs="+", choices=["noop", "1ms"], default=["noop", "1ms"])
    parser.add_argument(
        "--rates", type=int, nargs="+", default=[10, 500], help="jobs a second of the latencies"
    )
    _add_times(parser)
    parser.add_argument(
        "--held-together", type=int, default=3, help="snapshots that are held at the same time"
    )
    parser.add_argument(
        "--json", metavar="FILE", help="the record; by default in the state directory"
    )
    parser.add_argument("--resume", action="store_true", help="go on with what the record lacks")
    parser.add_argument("--output", metavar="FOLDER", help="write the page and its chart there")


def _add_times(parser: argparse.ArgumentParser) -> None:
    times = {
        "publish-seconds": (3.0, "a round of publishing, at the most; 0 leaves them out"),
        "drain-seconds": (5.0, "a drain, at the most"),
        "latency-seconds": (5.0, "a round of latencies; 0 leaves them out"),
        "held-seconds": (180.0, "a snapshot is held under load; 0 leaves that out"),
        "held-rate": (200.0, "jobs a second that each is offered meanwhile"),
    }
    for name, (default, help) in times.items():
        parser.add_argument(f"--{name}", type=float, default=default, help=help)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]
