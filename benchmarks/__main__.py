"""`python -m benchmarks limit`, `faults` or `peers`: see their pages in docs/."""

import argparse
import os
from importlib import import_module
from pathlib import Path

import django

from benchmarks.day import options as day
from benchmarks.faults import options as faults
from benchmarks.peers import options as peers
from benchmarks.pipeline import options as pipeline


def main() -> None:
    options = _options().parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = getattr(options, "settings", "benchmarks.settings")
    django.setup()
    import_module(options.module).run(options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    commands = parser.add_subparsers(required=True)
    day.add_to(commands)
    faults.add_to(commands)
    peers.add_to(commands)
    pipeline.add_to(commands)
    _compare(commands.add_parser("compare", help="two commits: limit in turns, ratios of rates"))
    _client(commands.add_parser("client", help="the Python client beside a bare loop"))
    waiting = commands.add_parser("lingering", help="pulls that wait, and how soon they are woken")
    waiting.set_defaults(module="benchmarks.long_poll")
    waiting.add_argument("--clients", type=int, default=500)
    waiting.add_argument("--consumers", type=int, nargs="+", default=[1, 50])
    waiting.add_argument("--rate", type=float, default=200.0, help="messages a second")
    waiting.add_argument("--seconds", type=float, default=20.0)
    waiting.add_argument("--json", action="store_true", help="one line of JSON")
    push = commands.add_parser("push", help="quick endpoints beside slow ones")
    push.set_defaults(module="benchmarks.push")
    push.add_argument("--slow", type=int, default=500, help="endpoints that take their time")
    push.add_argument("--quick", type=int, default=100, help="endpoints that don't")
    push.add_argument("--seconds-each", type=float, default=2.0, help="what slow ones take")
    push.add_argument("--seconds", type=float, default=20.0, help="of measuring")
    push.add_argument("--json", action="store_true", help="one line of JSON")
    keys = commands.add_parser("keys", help="free keys behind a busy one")
    keys.set_defaults(module="benchmarks.keys")
    keys.add_argument("--busy", type=int, default=10_000, help="jobs of the busy key")
    keys.add_argument("--free", type=int, default=20_000, help="jobs of free keys")
    keys.add_argument("--rounds", type=int, default=3)
    keys.add_argument("--json", action="store_true", help="one line of JSON")
    _listing(commands.add_parser("listing", help="a page of queued-jobs at any backlog"))
    http = commands.add_parser("http", help="requests a second of the API")
    http.set_defaults(module="benchmarks.http")
    http.add_argument("--backlogs", type=int, nargs="+", default=[10_000, 1_000_000])
    http.add_argument("--clients", type=int, default=8)
    http.add_argument("--requests", type=int, default=500, help="of a kind, at the most")
    http.add_argument("--json", action="store_true", help="one line of JSON")
    _pages(commands.add_parser("pages", help="every page of the admin over millions of rows"))
    limit = commands.add_parser("limit", help="the most it can do")
    limit.set_defaults(module="benchmarks.modes")
    limit.add_argument("--jobs", type=int, nargs="+", help="queued at the start")
    limit.add_argument("--batch", type=int, default=500, help="jobs of one claim")
    limit.add_argument("--rounds", type=int, default=3)
    limit.add_argument(
        "--publishes", type=int, default=4_000, help="messages published one by one in a round"
    )
    limit.add_argument("--publish-rounds", type=int, default=5)
    limit.add_argument(
        "--processes",
        type=int,
        nargs="+",
        metavar="N",
        help="at once; by default 1, 2 and as many as there are cores, 4 at the most",
    )
    limit.add_argument(
        "--designs", nargs="*", metavar="NAME", help="raw designs to compare with; all by default"
    )
    limit.add_argument("--json", action="store_true", help="one line of JSON; tables go to stderr")
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
        help="few jobs, a snapshot held as long",
    )
    limit.add_argument(
        "--slow-publishers",
        action="store_true",
        help="in a trickle: some transactions stay open 5 s",
    )
    return parser


def _compare(compare: argparse.ArgumentParser) -> None:
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
    compare.add_argument("--json", type=Path, metavar="FILE", help="write all figures there, too")


def _two_or_more(text: str) -> int:
    if int(text) < 2:
        raise argparse.ArgumentTypeError(f"{text} is too few: an interval needs 2 or more")
    return int(text)


def _listing(listing: argparse.ArgumentParser) -> None:
    listing.set_defaults(module="benchmarks.listing")
    listing.add_argument("--small", type=int, default=10_000, help="jobs queued at first")
    listing.add_argument("--large", type=int, default=1_000_000, help="jobs queued then")
    listing.add_argument("--settled", type=int, default=500_000, help="how many of them are done")
    listing.add_argument("--delayed", type=int, default=10_000, help="jobs that are due later")
    listing.add_argument("--rounds", type=int, default=200, help="pages timed")
    listing.add_argument("--json", action="store_true", help="one line of JSON")


def _pages(pages: argparse.ArgumentParser) -> None:
    pages.set_defaults(module="benchmarks.pages", settings="benchmarks.pages_settings")
    pages.add_argument("--archived", type=int, default=10_000_000)
    pages.add_argument("--queued", type=int, default=1_000_000)
    pages.add_argument("--json", action="store_true", help="one line of JSON")


def _client(client: argparse.ArgumentParser) -> None:
    client.set_defaults(module="benchmarks.client")
    client.add_argument("--jobs", type=int, default=50_000, help="of a run")
    client.add_argument("--rounds", type=int, default=3)
    client.add_argument("--json", action="store_true", help="one line of JSON")


if __name__ == "__main__":
    main()
