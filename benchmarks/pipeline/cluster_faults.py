"""Proof of the guide on clusters: a standalone cluster whose processes are killed at random.

The workers have Spark and nothing of pulljobs: tasks import it from the archive of `lake package`.
Each round publishes a file, runs a handler over the jobs, exports, counts and verifies. Meanwhile
executors and workers are killed, and the process group of the command. A command that was killed is
run again, as its user would. At the end SQL and DuckDB count what is there.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import duckdb
from deltalake import DeltaTable

from benchmarks.database import CHANNEL, CONSUMER, own_database, query
from benchmarks.pipeline.cluster import Cluster, serve_cluster
from example_project.state import BASE_DIR
from pulljobs.models import Consumer, Job
from pulljobs.states import State

HANDLER: Final = """
import pandas as pd


def score(jobs: pd.DataFrame) -> pd.DataFrame:
    bad = jobs[jobs.payload.str.decode("utf-8").astype(int) % 10 == 0]
    return pd.DataFrame({"job_id": bad.job_id, "outcome": "reject", "error": "divisible by ten"})
"""
KILL_AFTER: Final = (3.0, 10.0)
"""Shortest and longest time in seconds after which a command is killed."""
SPREAD: Final = (0.5, 1.5)
"""Shortest and longest pause between kills of executors and workers, in times of the average."""
VICTIM_SHARE: Final = 0.75
WORKER_SHARE: Final = 0.3
STEP_SECONDS: Final = 300
MOST_ATTEMPTS: Final = 30
MOST_DELIVERIES: Final = 1_000
"""Limit of deliveries above the number of kills, so that no job is dead because of them."""
SETTLED: Final = "SELECT state, count(*), count(DISTINCT job_id) FROM {} GROUP BY state"
LEFT: Final = (
    "SELECT (SELECT count(*) FROM pulljobs_job WHERE state <> 'DEAD'),"
    " (SELECT count(*) FROM pulljobs_lease)"
)
ROLLED_UP: Final = "SELECT sum(delivered), sum(dead) FROM pulljobs_rollup WHERE period = 'hour'"


def run(options: argparse.Namespace) -> None:
    """Run the rounds and report. Exit with 1 if a count is wrong."""
    random.seed(options.seed)
    signal.signal(signal.SIGTERM, _exit)
    started = time.monotonic()
    with TemporaryDirectory() as name, own_database(durable=False):
        Consumer.objects.update(max_deliveries=MOST_DELIVERIES)
        folder = Path(name)
        with serve_cluster(folder, options.workers, is_bare=True) as cluster:
            proof = ClusterProof(folder, cluster, options.kills)
            with proof.killing(options.pause):
                for number in range(options.rounds):
                    proof.run_round(number, options.rows)
        report = {**proof.counts, **_judge(folder / "lake", options.rows * options.rounds)}
    report["seconds"] = round(time.monotonic() - started)
    lines = [f"{name}: {value}" for name, value in report.items()]
    print(json.dumps(report) if options.json else "\n".join(lines))
    if not report["clean"]:
        sys.exit(1)


def _exit(_number: int, _frame: object) -> NoReturn:
    """Exit at a signal by an exception, so that the cluster ends and the database is dropped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("The command was ended by a signal.")


class ClusterProof:
    """Commands that run on a cluster until they succeed."""

    def __init__(self, folder: Path, cluster: Cluster, kills: int) -> None:
        self._folder, self._cluster, self._kills_left = folder, cluster, kills
        (folder / "shop_handler.py").write_text(HANDLER)
        self.counts: Counter[str] = Counter()
        self._environment = self._choose_environment({})
        [archive] = self._run("package", str(folder / "package.tar"), "--include", "shop_handler")
        self._environment = self._choose_environment(archive["properties"])

    def run_round(self, number: int, rows: int) -> None:
        """Publish rows, run the handler over them, and bring the lake up to date."""
        file = self._folder / f"round{number}.txt"
        file.write_text("".join(f"{row}\n" for row in range(rows)))
        place = ("--channel", CHANNEL, "--consumer", CONSUMER)
        self._run_to_end("publish", str(file), *place)
        self._run_to_end("consume", *place, "--handler", "shop_handler:score", "--batch", "2000")
        while Job.objects.exclude(state=State.DEAD).exists():
            self._run_to_end("consume", *place, "--handler", "shop_handler:score")
        for verb in ("export", "rollup", "verify"):
            self._run_to_end(verb)

    @contextmanager
    def killing(self, pause: float) -> Iterator[None]:
        """Kill executors and workers during the block."""
        ended = threading.Event()

        def kill() -> None:
            while not ended.wait(pause * random.uniform(*SPREAD)):
                if random.random() < WORKER_SHARE:
                    self._cluster.kill_worker()
                    self.counts["workers_killed"] += 1
                else:
                    self.counts["executors_killed"] += self._cluster.kill_executor()

        thread = threading.Thread(target=kill)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def _run_to_end(self, *words: str) -> None:
        """Run a command until it succeeds. Raise RuntimeError if it fails MOST_ATTEMPTS times."""
        for _attempt in range(MOST_ATTEMPTS):
            if self._run(*words, may_be_killed=True):
                self.counts["commands"] += 1
                return
        raise RuntimeError(f"{' '.join(words)} failed {MOST_ATTEMPTS} times")

    def _run(self, *words: str, may_be_killed: bool = False) -> list[dict[str, Any]]:
        """Run a command once. Return a list of its answer, empty if it was killed or failed."""
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "pulljobs", "lake", *words, "--json"],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        is_victim = may_be_killed and self._kills_left > 0 and random.random() < VICTIM_SHARE
        seconds = random.uniform(*KILL_AFTER) if is_victim else STEP_SECONDS
        started = time.monotonic()
        try:
            output, error = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._kills_left -= is_victim
            self.counts["drivers_killed" if is_victim else "commands_timed_out"] += 1
            return []
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
        print(f"{words[0]}: {time.monotonic() - started:.0f} s", file=sys.stderr)
        if process.returncode == 0:
            return [json.loads(output)]
        self.counts["commands_failed"] += 1
        print(f"{words[0]}: {error.strip().splitlines()[-1]}", file=sys.stderr)
        return []

    def _choose_environment(self, properties: Mapping[str, str]) -> dict[str, str]:
        spark = {
            "spark.master": self._cluster.url,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "700m",
            "spark.executor.memory": "500m",
            **properties,
        }
        project = {"LAKE": str(self._folder / "lake"), "SPARK": spark}
        return os.environ | {
            "DJANGO_SETTINGS_MODULE": "benchmarks.settings",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PULLJOBS_BENCHMARK_SETTINGS": json.dumps(project),
            "PYSPARK_PYTHON": "python3",
            "PYTHONPATH": os.pathsep.join([str(BASE_DIR), str(self._folder)]),
        }


def _judge(lake: Path, jobs: int) -> dict[str, Any]:
    """Return counts of jobs in PostgreSQL and the lake, and if each fits the `jobs` published."""
    dead = jobs // 10
    expected = sorted([("DEAD", dead, dead), ("DELIVERED", jobs - dead, jobs - dead)])
    paths = DeltaTable(str(lake / "archive")).file_uris()
    messages = DeltaTable(str(lake / "messages")).file_uris()
    with duckdb.connect() as connection:
        archive = SETTLED.format(f"read_parquet({paths!r})")
        there = sorted(connection.execute(archive).fetchall())
        ids = f"SELECT count(*), count(DISTINCT id) FROM read_parquet({messages!r})"
        there_messages = connection.execute(ids).fetchall()
    here, rolled_up = sorted(query(SETTLED.format("pulljobs_archived_job"))), query(ROLLED_UP)
    checks = {
        "postgresql": here == expected,
        "lake": there == expected,
        "messages": there_messages == [(jobs, jobs)],
        "rollups": rolled_up == [(jobs - dead, dead)],
        "nothing_left": query(LEFT) == [(0, 0)],
    }
    figures = {"jobs": jobs, "settled": here, "in_lake": there, "rolled_up": rolled_up}
    return {**figures, **checks, "clean": all(checks.values())}
