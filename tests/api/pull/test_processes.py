"""A server of pulls that is told to end, and one whose database goes away."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import psycopg
import pytest
from django.db import connection

from pulljobs.models import Node, PullWaiter
from tests.api.caller import Subscription
from tests.api.pull.processes import site
from tests.api.pull.serving import LONG, Puller, said, waiting
from tests.example.processes import kill_server, project
from tests.sessions import PATIENCE_SECONDS, Thread, query, wait_until

pytestmark = pytest.mark.processes


def test_a_server_that_is_told_to_end_answers_who_lingers(
    client: httpx.Client, census: Subscription
) -> None:
    """At once, though it waits for its requests; and publishers wake it no more."""
    with site({"SERVED_DATABASE": str(connection.settings_dict["NAME"])}) as served:
        puller = Puller(client, served.base, census)
        threads = [Thread(lambda: puller.pull(Expires=LONG)) for _ in range(3)]
        wait_until(lambda: waiting() == 3)
        start = time.monotonic()
        assert served.stop() in (0, -signal.SIGTERM)
        assert time.monotonic() - start < LONG / 2
        reasons = {thread.result()["Status"]["Reason"] for thread in threads}
    assert reasons == {"server_shutdown"}
    assert not PullWaiter.objects.exists()
    assert Node.objects.get().stopped_at is not None
    wait_until(is_alone)


PREPARE = """
import django
django.setup()
from django.core.management import call_command
from django.db import connection
from pulljobs.models import Producer
from tests.api.caller import subscription
call_command("migrate", verbosity=0)
subscription("orders", "census")
producer = Producer(name="shop")
producer.set_token("shop-token")
producer.save()
print(connection.settings_dict["HOST"])
"""
CALLERS = 3
SHOP = {
    "X-Broker-Channel-Token": "orders-token",
    "X-Broker-Producer-ID": "shop",
    "X-Broker-Producer-Token": "shop-token",
}
CENSUS = {
    "X-Broker-Channel-Token": "orders-token",
    "X-Broker-Consumer-Token": "census-of-orders-token",
}


class Load:
    """Publishes, pulls and acks over HTTP until it is stopped, and keeps what was confirmed."""

    def __init__(self, base: str) -> None:
        self.root, self.stopping = f"{base}/channel/orders", False
        self.published: set[str] = set()
        self.delivered: set[str] = set()
        self.unavailable: Counter[str] = Counter()
        self.served: Counter[str] = Counter()
        self.threads = [
            Thread(partial(self._run, call, number))
            for call in (self._publish, self._work)
            for number in range(CALLERS)
        ]

    def _run(self, call: Callable[[httpx.Client, str], None], number: int) -> None:
        with httpx.Client(timeout=2 * PATIENCE_SECONDS) as client:
            for turn in count():
                if self.stopping:
                    return
                call(client, f"{number}-{turn}")

    def _publish(self, client: httpx.Client, name: str) -> None:
        headers = {**SHOP, "X-Broker-Message-ID": name}
        url = f"{self.root}/broadcast"
        if self._answered("publish", client.post(url, content=b"x", headers=headers), 201):
            self.published.add(name)
        time.sleep(0.01)

    def _work(self, client: httpx.Client, name: str) -> None:
        consumer = f"{self.root}/consumer/census"
        answer = client.post(f"{consumer}/pull", json={"Batch": 5, "Expires": 1}, headers=CENSUS)
        if not self._answered("pull", answer, 200):
            return
        names = {job["ID"]: job["Message"]["MessageID"] for job in answer.json()["Result"]}
        results = [said(job, "DELIVERED") for job in answer.json()["Result"]]
        acked = client.post(f"{consumer}/ack", json={"Results": results}, headers=CENSUS)
        if self._answered("ack", acked, 200):
            told = acked.json()["Results"]
            self.delivered |= {names[one["ID"]] for one in told if one["Status"] == "ok"}

    def _answered(self, call: str, answer: httpx.Response, success: int) -> bool:
        """Whether it was done; the only other answer there may be is a clear 503."""
        if answer.status_code == success:
            self.served[call] += 1
            return True
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
        self.unavailable[call] += 1
        time.sleep(0.05)
        return False


def test_E44_the_database_goes_and_comes_back_under_load() -> None:
    """503 with Retry-After meanwhile, work again after it, and whatever was confirmed is there."""
    with project() as made:
        kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        settings = {"DJANGO_SETTINGS_MODULE": "tests.api.pull.settings"}
        environment = {**kept, **made.environment, **settings, "SERVED_DATABASE": "pulljobs"}
        starter = made.user()
        starter.connect()
        prepared = subprocess.run(
            [sys.executable, "-c", PREPARE], env=environment, check=True, capture_output=True
        )
        run = Path(prepared.stdout.decode().strip())
        url = f"postgres:///pulljobs?{urlencode({'host': run, 'user': 'pulljobs'})}"
        # By its address: the server must not start because somebody asks for it.
        with site({"SERVED_DATABASE": "pulljobs", "DATABASE_URL": url}) as served:
            load = Load(served.base)
            wait_until(lambda: len(load.delivered) > 50)
            kill_server(run)
            wait_until(lambda: min(load.unavailable[call] for call in ("publish", "pull")) > 5)
            starter.connect()
            before = Counter(load.served)
            wait_until(
                lambda: min((load.served - before)[call] for call in ("publish", "ack")) > 20
            )
            load.stopping = True
            for thread in load.threads:
                thread.result()
            with psycopg.connect(host=str(run), user="pulljobs", dbname="pulljobs") as session:
                jobs = _states(session)
    assert load.published <= jobs.keys()
    assert {jobs[name] for name in load.delivered} == {("DELIVERED", 1)}


def _states(session: psycopg.Connection[Any]) -> dict[str, tuple[str, int]]:
    """By the producer's ids of the messages; how many rows the archive has of each."""
    return {
        name: (state, rows)
        for name, state, rows in session.execute(
            "SELECT client_message_id, coalesce(max(archived.state), max(job.state)),"
            " count(archived.id) FROM pulljobs_message AS message"
            " LEFT JOIN pulljobs_archived_job AS archived ON archived.message_id = message.id"
            " LEFT JOIN pulljobs_job AS job ON job.message_id = message.id"
            " GROUP BY client_message_id"
        )
    }


def is_alone() -> bool:
    """Whether the server has noticed the end of all others: a database in use can't be dropped."""
    return not query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
