"""Benchmarks of pulljobs: `python -m benchmarks COMMAND`, described in docs/benchmarks.md."""

import argparse
import os
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import django

from benchmarks.faults import options as faults
from benchmarks.flags import add_json
from benchmarks.peers import options as peers
from benchmarks.pipeline import options as pipeline
from benchmarks.workflows import options as workflows

LEAST_HOURS: Final = 8
"""Fewest hours of a run: with fewer, retention drops nothing in the second quarter."""

Commands = Any
"""Result of `add_subparsers`, whose class argparse does not export."""


def main() -> None:
    """Set up Django with the settings of the chosen benchmark and run it."""
    options = _options().parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = getattr(options, "settings", "benchmarks.settings")
    django.setup()
    import_module(options.module).run(options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for add in (_add_limit, _add_compare, _add_capacity, _add_consumers, _add_start):
        add(commands)
    for add in (
        _add_keys,
        _add_turns,
        _add_flow,
        _add_flow_designs,
        _add_listing,
        _add_day,
        _add_http,
        _add_long_poll,
        _add_client,
        _add_push,
        _add_pages,
    ):
        add(commands)
    for add in (_add_schedules, _add_schedule_faults, _add_batch_faults, _add_batch_cost):
        add(commands)
    faults.add_to(commands)
    peers.add_to(commands)
    pipeline.add_to(commands)
    workflows.add_to(commands)
    return parser


def _add_limit(commands: Commands) -> None:
    limit = commands.add_parser("limit", help="jobs a second of the worker and of raw SQL")
    limit.set_defaults(module="benchmarks.limit")
    limit.add_argument("--jobs", type=int, nargs="+", help="queued at the start of each drain")
    limit.add_argument("--batch", type=int, default=500, help="jobs of one claim")
    limit.add_argument("--rounds", type=int, default=3, help="drains of each contender")
    limit.add_argument(
        "--publishes", type=int, default=4_000, help="messages published one by one in a round"
    )
    limit.add_argument("--publish-rounds", type=int, default=5)
    limit.add_argument(
        "--processes",
        type=int,
        nargs="+",
        metavar="N",
        help="that work at a time; default: 1, 2 and the number of cores, 4 at most",
    )
    limit.add_argument(
        "--designs", nargs="*", metavar="NAME", help="raw designs to compare with; default: all"
    )
    add_json(limit)
    mode = limit.add_mutually_exclusive_group()
    mode.add_argument(
        "--pinned", action="store_true", help="drain while another session holds a snapshot"
    )
    mode.add_argument(
        "--trickle",
        type=float,
        nargs="?",
        const=10.0,
        metavar="MINUTES",
        help="publish a few jobs a second while a snapshot is held (default: 10 minutes)",
    )
    limit.add_argument(
        "--slow-publishers",
        action="store_true",
        help="with --trickle: some publishing transactions stay open for 5 s",
    )


def _add_compare(commands: Commands) -> None:
    compare = commands.add_parser("compare", help="two commits: `limit` in turns, ratios of rates")
    compare.set_defaults(module="benchmarks.compare")
    compare.add_argument("old", help="commit before the change")
    compare.add_argument("new", help="commit with the change")
    compare.add_argument(
        "--rounds", type=_two_or_more, default=10, help="pairs of runs, 2 or more (default: 10)"
    )
    compare.add_argument("--jobs", type=int, default=100_000, help="queued for each drain")
    compare.add_argument("--processes", type=int, nargs="+", default=[1, 4], metavar="N")
    compare.add_argument(
        "--publishes", type=int, default=4_000, help="messages published one by one in a run"
    )
    compare.add_argument("--json", type=Path, metavar="FILE", help="file to write all figures to")


def _two_or_more(text: str) -> int:
    if int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text} is too few: an interval needs 2 or more")
    return int(text)


def _add_keys(commands: Commands) -> None:
    keys = commands.add_parser("keys", help="free keys that are queued behind a busy key")
    keys.set_defaults(module="benchmarks.keys")
    keys.add_argument("--busy", type=int, default=10_000, help="jobs of the busy key")
    keys.add_argument("--free", type=int, default=20_000, help="jobs of free keys")
    keys.add_argument("--rounds", type=int, default=3)
    add_json(keys)


def _add_capacity(commands: Commands) -> None:
    capacity = commands.add_parser("capacity", help="costs of a job for `pulljobs capacity`")
    capacity.set_defaults(module="benchmarks.capacity")
    capacity.add_argument("--jobs", type=int, default=50_000, help="of a run")
    capacity.add_argument("--rounds", type=int, default=3, help="the costs are medians")
    capacity.add_argument("--costs", type=Path, metavar="FILE", help="file to write the costs to")
    add_json(capacity)


def _add_start(commands: Commands) -> None:
    start = commands.add_parser("start", help="first claim, first seconds and memory of a worker")
    start.set_defaults(module="benchmarks.start")
    start.add_argument("--rounds", type=int, default=5)
    start.add_argument("--rate", type=float, default=20, help="jobs a second after the first")
    start.add_argument("--seconds", type=float, default=5, help="that count as the first")
    add_json(start)


def _add_consumers(commands: Commands) -> None:
    consumers = commands.add_parser("consumers", help="a job among many consumers without jobs")
    consumers.set_defaults(
        module="benchmarks.consumers.session", settings="benchmarks.consumers.settings"
    )
    consumers.add_argument("--busy", type=int, default=100, help="consumers with jobs")
    consumers.add_argument("--idle", type=int, nargs="+", default=[0, 9_900], help="without jobs")
    consumers.add_argument("--jobs", type=int, default=400, help="of a round")
    consumers.add_argument("--rounds", type=int, default=9)
    consumers.add_argument("--rest", type=float, default=5, help="seconds after the worker's start")
    consumers.add_argument("--rate", type=float, default=200, help="jobs a second for the worker")
    consumers.add_argument("--seconds", type=float, default=10, help="of that rate")
    add_json(consumers)


def _add_turns(commands: Commands) -> None:
    turns = commands.add_parser("turns", help="fresh keys behind a backlog, and shares by weight")
    turns.set_defaults(module="benchmarks.turns")
    turns.add_argument("--backlog", type=int, default=1_000_000, help="jobs of one key")
    turns.add_argument("--fresh", type=int, default=100, help="other keys, with a job each")
    turns.add_argument("--rate", type=float, default=10, help="of these jobs a second")
    turns.add_argument("--shared", type=int, default=40_000, help="jobs of the two keys")
    add_json(turns)


def _add_flow(commands: Commands) -> None:
    flow = commands.add_parser("flow", help="jobs a second of consumers with limits")
    flow.set_defaults(module="benchmarks.flow")
    flow.add_argument("--jobs", type=int, default=50_000, help="queued for each drain")
    flow.add_argument("--wanted", type=int, default=200, help="jobs that a claim asks for")
    flow.add_argument("--rounds", type=int, default=5)
    flow.add_argument(
        "--peers", nargs="*", metavar="NAME", default=[], choices=("pulljobs", "procrastinate"),
        help="whose workers drain with and without keys as well",
    )  # fmt: skip
    flow.add_argument("--peer-jobs", type=int, default=20_000, help="queued for each such drain")
    flow.add_argument("--peer-keys", type=int, default=1_000, help="keys of these jobs")
    flow.add_argument("--peer-seconds", type=float, default=60.0, help="longest such drain")
    add_json(flow)


def _add_flow_designs(commands: Commands) -> None:
    flow = commands.add_parser("flow-designs", help="prototypes of limits by key and fair share")
    flow.set_defaults(module="benchmarks.flow_designs")
    flow.add_argument("--jobs", type=int, default=100_000, help="queued for each drain")
    flow.add_argument("--keys", type=int, nargs="+", default=[1, 1_000, 100_000])
    flow.add_argument("--wanted", type=int, default=100, help="jobs that a claim asks for")
    flow.add_argument("--rounds", type=int, default=3)
    flow.add_argument("--planted", action="store_true", help="break a bound, for comparison")
    add_json(flow)


def _add_listing(commands: Commands) -> None:
    listing = commands.add_parser("listing", help="a page of queued-jobs at any backlog")
    listing.set_defaults(module="benchmarks.listing")
    listing.add_argument("--small", type=int, default=10_000, help="jobs of the small backlog")
    listing.add_argument("--large", type=int, default=1_000_000, help="jobs of the large backlog")
    listing.add_argument("--settled", type=int, default=500_000, help="of the large backlog")
    listing.add_argument("--delayed", type=int, default=10_000, help="jobs that are due later")
    listing.add_argument("--rounds", type=int, default=200, help="pages timed")
    add_json(listing)


def _add_day(commands: Commands) -> None:
    day = commands.add_parser("day", help="growth over 24 hours of jobs, in fast motion")
    day.set_defaults(module="benchmarks.day.session", settings="benchmarks.day.settings")
    day.add_argument("--hours", type=_hours, default=24, help=f"{LEAST_HOURS} or more")
    day.add_argument("--rate", type=float, default=500.0, help="jobs a second of those hours")
    day.add_argument("--processes", type=int, default=2, help="of the worker")
    add_json(day)


def _hours(text: str) -> int:
    hours = int(text)
    if hours < LEAST_HOURS:
        raise argparse.ArgumentTypeError(
            f"{hours} is fewer than {LEAST_HOURS} hours: retention would drop nothing to compare"
        )
    return hours


def _add_http(commands: Commands) -> None:
    http = commands.add_parser("http", help="requests a second of the API")
    http.set_defaults(module="benchmarks.http")
    http.add_argument("--backlogs", type=int, nargs="+", default=[10_000, 1_000_000])
    http.add_argument("--clients", type=int, default=8)
    http.add_argument("--requests", type=int, default=500, help="of each kind, at most")
    http.add_argument("--rounds", type=int, default=3, help="of pulls and acks")
    add_json(http)


def _add_long_poll(commands: Commands) -> None:
    long_poll = commands.add_parser("long-poll", help="hundreds of waiting pulls")
    long_poll.set_defaults(module="benchmarks.long_poll")
    long_poll.add_argument("--clients", type=int, default=500)
    long_poll.add_argument("--consumers", type=int, nargs="+", default=[1, 50])
    long_poll.add_argument("--rate", type=float, default=200.0, help="messages a second")
    long_poll.add_argument("--seconds", type=float, default=20.0)
    add_json(long_poll)


def _add_client(commands: Commands) -> None:
    client = commands.add_parser("client", help="the Python client compared with a bare loop")
    client.set_defaults(module="benchmarks.client")
    client.add_argument("--jobs", type=int, default=50_000, help="of each run")
    client.add_argument("--rounds", type=int, default=3)
    add_json(client)


def _add_push(commands: Commands) -> None:
    push = commands.add_parser("push", help="quick endpoints among slow endpoints")
    push.set_defaults(module="benchmarks.push")
    push.add_argument("--slow", type=int, default=500, help="number of slow endpoints")
    push.add_argument("--quick", type=int, default=100, help="number of quick endpoints")
    push.add_argument("--seconds-each", type=float, default=2.0, help="answer time of slow ones")
    push.add_argument("--seconds", type=float, default=20.0, help="length of the measurement")
    add_json(push)


def _add_pages(commands: Commands) -> None:
    pages = commands.add_parser("pages", help="times of admin pages over millions of rows")
    pages.set_defaults(module="benchmarks.pages", settings="benchmarks.pages_settings")
    pages.add_argument("--archived", type=int, default=10_000_000)
    pages.add_argument("--queued", type=int, default=1_000_000)
    pages.add_argument("--only", default="", help="pages whose name contains this text")
    pages.add_argument("--keep", action="store_true", help="keep the database for the next run")
    add_json(pages)


def _add_schedules(commands: Commands) -> None:
    parser = commands.add_parser("schedules", help="cost of a pass, and lateness of slots")
    parser.set_defaults(
        module="benchmarks.schedules.measures", settings="benchmarks.schedules.settings"
    )
    parser.add_argument("--schedules", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=50, help="passes of each number")
    parser.add_argument("--rate", type=int, default=500, help="slots due a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement")
    add_json(parser)


def _add_schedule_faults(commands: Commands) -> None:
    parser = commands.add_parser(
        "schedule-faults", help="schedules fire while workers and the server are killed"
    )
    parser.set_defaults(module="benchmarks.schedules.faults")
    parser.add_argument("--workers", type=int, default=20, help="half have a wrong clock")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long faults happen")
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--often", type=int, default=100, help="schedules that fire each second")
    parser.add_argument("--pause", type=float, default=2.0, help="average seconds between faults")
    parser.add_argument("--seed", type=int, help="of the random choices")
    parser.add_argument("--state", type=Path, help="directory in which the server stays")
    add_json(parser)


def _add_batch_faults(commands: Commands) -> None:
    parser = commands.add_parser(
        "batch-faults", help="batches call back once while processes are killed"
    )
    parser.set_defaults(module="benchmarks.batches.faults")
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--members", type=int, default=1_000_000, help="of the large batch")
    parser.add_argument("--rounds", type=int, default=200, help="small batches, of 50 members")
    parser.add_argument("--pause", type=float, default=2.0, help="average seconds between kills")
    parser.add_argument("--patience", type=float, default=3600.0, help="seconds until it gives up")
    parser.add_argument("--seed", type=int, help="of the random choices")
    parser.add_argument("--state", type=Path, help="directory in which the server stays")
    add_json(parser)


def _add_batch_cost(commands: Commands) -> None:
    parser = commands.add_parser("batch-cost", help="settlements of members and of other jobs")
    parser.set_defaults(module="benchmarks.batches.cost")
    parser.add_argument("--pairs", type=int, default=2_000, help="of single jobs; fewer of more")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1, 10, 100, 1_000])
    add_json(parser)


if __name__ == "__main__":
    main()
