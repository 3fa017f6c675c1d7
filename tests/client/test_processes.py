"""Clients on a live server, most in processes of their own: a lookup, signals, the command line."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from example_project.state import BASE_DIR
from pulljobs.client import Consumer
from pulljobs.client.commands import main
from pulljobs.models import ArchivedJob, Job
from pulljobs.publishing import publish_many
from tests.api.leases.processes import STARTING_SECONDS
from tests.client.names import ENVIRONMENT, SUBSCRIPTION
from tests.client.worlds import Live
from tests.sessions import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

CLIENT = [sys.executable, "-m", "pulljobs.client"]
MANY = 3000
"""Number of messages that a worker cannot finish before its stop, even if this process stalls."""


@contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, cwd=BASE_DIR, env={**os.environ, **ENVIRONMENT}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*CLIENT, *arguments],
        cwd=BASE_DIR,
        env={**os.environ, **ENVIRONMENT},
        input=stdin,
        capture_output=True,
        text=True,
        timeout=STARTING_SECONDS,
    )


def delivered() -> int:
    return ArchivedJob.objects.filter(state="DELIVERED").count()


def assert_nothing_leaked(published: int) -> None:
    """Check that all messages that were not delivered are queued without a delivery."""
    untouched = Counter({("QUEUED", 0): published - delivered()})
    wait_until(lambda: Counter(Job.objects.values_list("state", "deliveries")) == untouched)


def in_flight() -> int:
    return Job.objects.filter(state="INFLIGHT").count()


def test_a_broker_is_found_by_lookup(live: Live) -> None:
    """The client finds a broker by its lookup, and reads its compressed answers."""
    publish_many("orders", [b"x"])
    asked = {"X-Broker-Channel-Token": SUBSCRIPTION.channel_token}
    answer = httpx.get(f"{live.base_url}/openapi.json", headers=asked, timeout=STARTING_SECONDS)
    assert answer.headers["Content-Encoding"] == "gzip"
    consumer = Consumer(
        lambda message: consumer.stop(), lookup_urls=[live.base_url], subscription=SUBSCRIPTION
    )
    consumer.run()
    assert delivered() == 1


@pytest.mark.parametrize("kind", ["plain", "async"])
def test_SIGTERM_in_the_middle(live: Live, kind: str) -> None:
    """Running handlers finish, waiting messages are released, and the worker exits with 0 soon."""
    publish_many("orders", [b"x"] * MANY)
    with started(sys.executable, "-m", "tests.client.worker", live.base_url, kind) as worker:
        wait_until(lambda: delivered() > 40, STARTING_SECONDS)
        worker.terminate()
        assert worker.wait(PATIENCE_SECONDS) == 0
    assert 40 < delivered() < MANY
    assert_nothing_leaked(MANY)


def test_a_stop_while_a_pull_lingers_leaves_nothing(live: Live) -> None:
    """Messages that arrive for the long poll of a stopping worker go back without a delivery."""
    with started(sys.executable, "-m", "tests.client.worker", live.base_url, "plain") as worker:
        publish_many("orders", [b"x"])
        wait_until(lambda: delivered() == 1, STARTING_SECONDS)
        worker.send_signal(signal.SIGINT)
        publish_many("orders", [b"x"] * 30)
        assert worker.wait(PATIENCE_SECONDS) == 0
    assert_nothing_leaked(31)


def test_consume_runs_a_command_for_each_message(live: Live, tmp_path: Path) -> None:
    """The payload is on stdin. Exit code 0 acks, any other retries. No secret is passed on."""
    consumer = f"{live.base_url}/channel/orders/consumer/census"
    publish_many("orders", [f"order {number}".encode() for number in range(6)])
    script = (
        f'read line; echo "$line $PULLJOBS_ATTEMPTS" >> {tmp_path}/out; env > {tmp_path}/env;'
        '[ "$line" != "order 3" ] || { echo "no such order" >&2; exit 3; }'
    )
    done = run("consume", consumer, "--exec", script, "--count", "6", "--concurrency", "3")
    assert done.returncode == 0, done.stderr
    assert sorted((tmp_path / "out").read_text().split("\n"))[1:] == [
        f"order {number} 1" for number in range(6)
    ]
    assert delivered() == 5
    assert Job.objects.get().error == "CommandFailed: exit 3: no such order"
    assert not any(token in (tmp_path / "env").read_text() for token in ENVIRONMENT.values())


def test_SIGTERM_lets_a_command_finish(live: Live, tmp_path: Path) -> None:
    publish_many("orders", [b"x"] * 3)
    consumer = f"{live.base_url}/channel/orders/consumer/census"
    out, gate = tmp_path / "out", tmp_path / "gate"
    command = f"echo began >> {out}; until [ -e {gate} ]; do sleep 0.05; done; echo ended >> {out}"
    with started(*CLIENT, "consume", consumer, "--exec", command, "--max-in-flight", "3") as client:
        wait_until(lambda: out.exists() and in_flight() == 3, STARTING_SECONDS)
        client.terminate()
        wait_until(lambda: in_flight() == 1)  # What waits is given back at once.
        gate.touch()
        assert client.wait(PATIENCE_SECONDS) == 0
    assert out.read_text() == "began\nended\n"
    assert delivered() == 1
    assert_nothing_leaked(3)


def test_a_second_signal_ends_it_at_once(live: Live, tmp_path: Path) -> None:
    """A second SIGTERM ends the client and the command that handles a message, without waiting."""
    publish_many("orders", [b"x"] * 2)
    consumer = f"{live.base_url}/channel/orders/consumer/census"
    pid = tmp_path / "pid"
    command = f"echo $$ > {pid}; exec sleep 120"
    wait = ("--graceful-timeout", "120")
    with started(
        *CLIENT, "consume", consumer, "--exec", command, "--max-in-flight", "2", *wait
    ) as client:
        wait_until(
            lambda: pid.exists() and pid.read_text().endswith("\n") and in_flight() == 2,
            STARTING_SECONDS,
        )
        client.terminate()
        wait_until(lambda: in_flight() == 1)  # It was heard: what waits is given back.
        assert client.poll() is None
        client.terminate()
        assert client.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())


def test_an_error_is_printed_in_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, token in ENVIRONMENT.items():
        monkeypatch.setenv(name, token)
    for url, sentence in {
        "http://127.0.0.1:9/channel/a/consumer/b": "cannot be reached",
        "http://127.0.0.1:9/nothing": "names no channel",
        "localhost/channel/a/consumer/b": "is no URL of a broker",
    }.items():
        assert main(["info", url]) == 1
        [line] = capsys.readouterr().err.splitlines()
        assert sentence in line
    monkeypatch.delenv("PULLJOBS_CHANNEL_TOKEN")
    assert main(["info", "http://127.0.0.1:9/channel/a/consumer/b"]) == 1
    assert "PULLJOBS_CHANNEL_TOKEN is not set" in capsys.readouterr().err
