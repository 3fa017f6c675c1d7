"""Flags that most benchmarks have."""

import argparse


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--json", action="store_true", help="print one line of JSON, and the tables to stderr"
    )
