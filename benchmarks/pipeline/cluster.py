"""Standalone cluster of Spark on the loopback, whose workers and executors can be killed."""

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psutil
import pyspark

from pulljobs.lake.spark import java

MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "CoarseGrainedExecutorBackend"
STARTED: Final = "Starting Spark master at "
START_SECONDS: Final = 180
POLL_SECONDS: Final = 0.05


@contextmanager
def serve_cluster(directory: Path, workers: int, *, is_bare: bool = False) -> Iterator["Cluster"]:
    """Run a cluster until the block ends. If it is bare, its Python finds no installed packages."""
    cluster = Cluster(directory, is_bare=is_bare)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.end()


class Cluster:
    """Spark cluster of a master and workers with a core each, started as the guide says."""

    url: str

    def __init__(self, directory: Path, *, is_bare: bool) -> None:
        self._directory = directory
        self._environment = {**os.environ, "SPARK_NO_DAEMONIZE": "1"}
        java.use(self._environment)
        if is_bare:
            path = f"{_make_bare_python(directory)}{os.pathsep}{os.environ['PATH']}"
            self._environment |= {"PATH": path, "PYTHONPATH": ""}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []

    def start(self, workers: int) -> None:
        """Start the master and the workers. Wait until all workers are registered at the master."""
        _master, log = self._start(MASTER, "--webui-port", "0")
        _wait_for(lambda: STARTED in log.read_text(), log)
        self.url = log.read_text().partition(STARTED)[2].split()[0]
        for _ in range(workers):
            self._start_worker()
        _wait_for(lambda: log.read_text().count("Registering worker") >= workers, log)

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def kill_worker(self) -> None:
        """Kill a worker, whose executors then end, and start another."""
        worker = random.choice(self._workers)
        worker.kill()
        worker.wait()
        self._workers.remove(worker)
        self._start_worker()

    def kill_executor(self) -> bool:
        """Kill an executor, and return True, or return False if there is none."""
        executors = [child for worker in self._workers for child in _find_executors(worker.pid)]
        if not executors:
            return False
        random.choice(executors).kill()
        return True

    def _start_worker(self) -> None:
        work = self._directory / f"work{len(self._processes)}"
        flags = ("--webui-port", "0", "--cores", "1", "--memory", "600m", "--work-dir", str(work))
        self._workers.append(self._start(WORKER, *flags, self.url)[0])

    def _start(self, main: str, *flags: str) -> "tuple[subprocess.Popen[bytes], Path]":
        log = self._directory / f"spark-{len(self._processes)}.log"
        script = Path(pyspark.__path__[0], "bin", "spark-class")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [script, main, "--host", "127.0.0.1", "--port", "0", *flags],
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        self._processes.append(process)
        return process, log


def _wait_for(condition: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"The cluster did not start: see {log}.")
        time.sleep(POLL_SECONDS)


def _find_executors(worker: int) -> list[psutil.Process]:
    try:
        children = psutil.Process(worker).children(recursive=True)
        return [child for child in children if EXECUTOR in " ".join(child.cmdline())]
    except psutil.Error:  # one has just ended
        return []


def _make_bare_python(directory: Path) -> Path:
    """Make a directory with a `python3` that finds no packages except those in PYTHONPATH."""
    folder = directory / "bare"
    folder.mkdir()
    script = folder / "python3"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    script.chmod(0o755)
    return folder
