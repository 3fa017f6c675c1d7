"""Estimate the processors and disks that a rate of jobs needs, and list advice, cheapest first.

The costs of a job are those of the guide on capacity, or those of your own machine, from the file
that `python -m benchmarks capacity --costs FILE` writes.
"""

import json
import re
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Iterator
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from django.core.management.base import CommandError

from pulljobs import capacity
from pulljobs.admin.dashboard.formats import size
from pulljobs.capacity import MEASURED, MICRO, Costs, Load, Machine, Needs
from pulljobs.conf import settings
from pulljobs.management.output_blocks import Block, FactsBlock
from pulljobs.management.parsing import (
    UNITS,
    number_between,
    parse_duration,
    parse_room,
    parse_size,
    whole_number,
)
from pulljobs.management.subcommands import EXIT_USAGE, CommandResult

HIGHEST_RATE: Final = 1e9
HIGHEST_COST: Final = 1e9
KEPT: Final = timedelta(days=30)
"""Age of the history to plan with if `RETENTION` keeps everything."""
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?(?:e\d{1,2})?)(?:/([smhd]))?")


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--rate", type=parse_rate, required=True, help="jobs: 500 or 500/s, 2e4/m, 1e9/d"
    )
    parser.add_argument(
        "--payload", type=parse_size, default=200, metavar="SIZE", help="of a message (200)"
    )
    parser.add_argument(
        "--batch", type=whole_number(1), default=1, help="messages of a publishing transaction (1)"
    )
    parser.add_argument(
        "--handler", type=number_between("seconds", 0, capacity.DAY), default=0.0,
        metavar="SECONDS", help="run time of a handler (0)",
    )  # fmt: skip
    parser.add_argument(
        "--keep", type=parse_duration, metavar="TIME", help="history: 30d; by default RETENTION"
    )
    _add_machine(parser)


def _add_machine(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--cores", type=whole_number(1), default=8, help="of the database server (8)"
    )
    parser.add_argument(
        "--disk", type=parse_room, metavar="SIZE", help="of that server, for jobs: 500G"
    )
    parser.add_argument(
        "--wal", type=parse_room, metavar="SIZE", help="that the disk takes a second: 200M"
    )
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="costs of a job on your machine, as JSON"
    )


def handle(**options: Any) -> CommandResult:
    costs = MEASURED if options["costs"] is None else read_costs(options["costs"])
    kept = (settings().RETENTION or KEPT) if options["keep"] is None else options["keep"]
    load = Load(
        rate=options["rate"],
        payload=options["payload"],
        batch=options["batch"],
        handler_seconds=options["handler"],
        retention=kept,
    )
    machine = Machine(
        cores=options["cores"], disk_bytes=options["disk"], written_per_second=options["wal"]
    )
    return _result(load, costs, machine)


def _result(load: Load, costs: Costs, machine: Machine) -> CommandResult:
    needs, steps = capacity.estimate(load, costs), list(capacity.next_steps(load, costs, machine))
    processes = capacity.count_processes(needs, settings().CONCURRENCY)
    highest = capacity.highest_rate(load, costs, machine)
    content = {
        **needs._asdict(),
        "worker_processes": processes,
        "highest_rate": highest,
        "steps": steps,
        "costs": asdict(costs),
    }
    rows = list(_describe(load, needs, processes, highest))
    return CommandResult(content, [FactsBlock(rows), *_number(steps)])


def parse_rate(text: str) -> float:
    """Parse a rate such as 500 (jobs per second), 2e4/m or 1e9/d, and return jobs per second."""
    match = _RATE.fullmatch(text)
    rate = float(match[1]) / UNITS[match[2] or "s"] if match else 0.0
    if not 0 < rate <= HIGHEST_RATE:
        raise ArgumentTypeError(f"{text!r} is no rate of jobs such as 500, 2e4/m or 1e9/d")
    return rate


def read_costs(path: Path) -> Costs:
    """Read the file of costs that `python -m benchmarks capacity` wrote, or raise CommandError."""
    try:
        costs = Costs(**json.loads(path.read_text("utf-8")))
        for name, cost in asdict(costs).items():
            _check_cost(name, cost)
        return costs
    except (OSError, ValueError, TypeError) as error:
        raise CommandError(
            f"{path} has no costs ({error}): write it with `python -m benchmarks capacity --costs "
            f"{path}`.",
            returncode=EXIT_USAGE,
        ) from error


def _check_cost(name: str, cost: object) -> None:
    """Raise ValueError unless the cost is a number above 0. Only a payload may cost nothing."""
    least = 0 if name == "payload_us" else MICRO
    if not (isinstance(cost, int | float) and least <= cost <= HIGHEST_COST):
        raise ValueError(f"{name} is {cost!r}, no number from {least:g} to {HIGHEST_COST:g}")


def _describe(
    load: Load, needs: Needs, processes: int, highest: float
) -> Iterator[tuple[str, str]]:
    days = load.retention / timedelta(days=1)
    daily, kept = size(needs.disk_per_day), size(needs.disk_bytes)
    workers = "1 process" if processes == 1 else f"{processes:,} processes"
    yield "jobs", f"{load.rate:,.0f} a second, {load.rate * capacity.DAY:,.0f} a day"
    yield "server", f"{needs.server_cores:,.2f} cores"
    yield "worker", f"{needs.worker_cores:,.2f} cores in {workers}, and what the handlers take"
    yield "handlers", f"{needs.threads:,.0f} at a time"
    yield "publishers", f"{needs.commits:,.0f} commits a second"
    yield "WAL", f"{size(needs.wal_per_second)} a second"
    yield "disk", f"{daily} a day, {kept} in {days:g} days"
    yield "such a server", f"carries {highest:,.0f} jobs a second"


def _number(steps: list[str]) -> list[Block]:
    numbered: list[Block] = [f"{number}. {step}" for number, step in enumerate(steps, 1)]
    return numbered or ["Nothing to split."]
