"""Estimates of the capacity model, and the steps that it advises."""

import json
from dataclasses import asdict, replace
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from pulljobs.capacity import (
    DAY,
    MOST,
    USED,
    Costs,
    Load,
    Machine,
    count_processes,
    count_servers,
    estimate,
    highest_rate,
    next_steps,
)
from pulljobs.management.subcommands.capacity import read_costs

COSTS = Costs(
    publish_us=120,
    batch_us=20,
    run_us=30,
    payload_us=10,
    worker_us=10,
    wal_bytes=1_000,
    row_bytes=500,
    commits=1_000,
)
LOAD = Load(rate=10_000, payload=1_000, retention=timedelta(days=10))
SERVER = Machine(cores=8)


def test_a_load_takes_the_costs_of_its_jobs_and_of_their_payloads() -> None:
    needs = estimate(LOAD, COSTS)
    assert needs.server_cores == pytest.approx(10_000 * (120 + 30 + 10) / 1e6)
    assert needs.worker_cores == pytest.approx(0.1)
    assert needs.wal_per_second == 10_000 * 2_000
    assert needs.disk_per_day == 10_000 * DAY * 1_500
    assert needs.disk_bytes == 10 * needs.disk_per_day


def test_a_batch_shares_its_commit() -> None:
    load = replace(LOAD, batch=100)
    assert estimate(load, COSTS).commits == 100
    assert load.server_seconds(COSTS) == pytest.approx((20 + 100 / 100 + 30 + 10) / 1e6)


def test_handlers_need_threads_and_processes() -> None:
    needs = estimate(replace(LOAD, handler_seconds=0.01), COSTS)
    assert needs.threads == 100
    assert count_processes(needs, concurrency=8) == 13
    assert count_processes(estimate(replace(LOAD, rate=200_000), COSTS), concurrency=8) == 3


def test_servers_are_counted_by_what_gives_out_first() -> None:
    by_cores = USED * 8 / 160 * 1e6
    assert highest_rate(LOAD, COSTS, SERVER) == pytest.approx(by_cores)
    by_wal = Machine(cores=8, written_per_second=10e6)
    assert highest_rate(LOAD, COSTS, by_wal) == pytest.approx(USED * 10e6 / 2_000)
    assert count_servers(LOAD, COSTS, by_wal) == 3
    assert highest_rate(replace(LOAD, batch=100), COSTS, Machine(cores=1_000)) == MOST


@pytest.mark.parametrize(
    ("load", "machine", "mentioned"),
    [
        (replace(LOAD, rate=10), SERVER, []),
        (replace(LOAD, rate=1_000), SERVER, ["publish_many"]),
        (replace(LOAD, rate=40_000, batch=100), SERVER, ["database of their own"]),
        (replace(LOAD, rate=400_000, batch=100), SERVER, ["over 5 databases"]),
        (replace(LOAD, rate=10), Machine(cores=8, disk_bytes=1e9), ["0.5 days", "RETENTION"]),
    ],
)
def test_the_cheapest_step_comes_first(load: Load, machine: Machine, mentioned: list[str]) -> None:
    steps = " ".join(next_steps(load, COSTS, machine))
    assert bool(steps) == bool(mentioned)
    assert all(text in steps for text in mentioned), steps


@pytest.mark.parametrize("cost", ["fast", None, 0, -1, float("nan"), 10**400])
def test_a_file_with_a_cost_that_is_no_possible_number_is_refused(
    tmp_path: Path, cost: object
) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({**asdict(COSTS), "payload_us": 0}))
    assert read_costs(path) == replace(COSTS, payload_us=0)
    path.write_text(json.dumps({**asdict(COSTS), "run_us": cost}))
    with pytest.raises(CommandError, match="has no costs .run_us is") as refused:
        read_costs(path)
    assert refused.value.returncode == 2


def test_a_history_of_no_time_takes_no_disk() -> None:
    output = StringIO()
    call_command("pulljobs", "capacity", "--rate=5", "--keep=0s", "--json", stdout=output)
    assert json.loads(output.getvalue())["disk_bytes"] == 0
