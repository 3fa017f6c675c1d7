"""`python -m benchmarks limit`: see docs/benchmarks.md."""

import argparse
import os

import django


def main() -> None:
    options = _options().parse_args()
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.settings"
    django.setup()
    from benchmarks import modes

    modes.run(options)


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    limit = parser.add_subparsers(required=True).add_parser("limit", help="the most it can do")
    limit.add_argument("--jobs", type=int, nargs="+", help="queued at the start")
    limit.add_argument("--batch", type=int, default=500, help="jobs of one claim")
    limit.add_argument("--rounds", type=int, default=3)
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


if __name__ == "__main__":
    main()
