"""A server process that stops during long polls, and one whose database is killed."""

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
from django.db import connections

from benchmarks.faults import history, tables
from benchmarks.faults.checker import Case, find_faults
from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    DELIVERED,
    ENDED,
    LOST,
    PUBLISHED,
    SENT,
    STARTED,
    Entry,
    HistoryWriter,
)
from pulljobs import ids
from pulljobs.models import Node, PullWaiter
from tests import second
from tests.api.caller import Subscription
from tests.api.leases.processes import site
from tests.api.leases.serving import LONG, Puller, outcome_of, waiting
from tests.example.processes import kill_server, project
from tests.sessions import PATIENCE_SECONDS, Thread, query, wait_until

pytestmark = pytest.mark.processes


def test_a_server_that_stops_answers_its_long_polls(
    client: httpx.Client, census: Subscription
) -> None:
    """SIGTERM at once ends all long polls, and deletes the row by which publishers notify them."""
    with site({"SERVED_DATABASE": str(connections["default"].settings_dict["NAME"])}) as served:
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
from django.db import connection, connections
from pulljobs.models import Producer
from tests.api.caller import subscription
call_command("migrate", verbosity=0)
subscription("orders", "census")
producer = Producer(name="shop")
producer.set_token("shop-token")
producer.save()
print(connection.settings_dict["HOST"])
"""
JOBS = """
SELECT client_message_id, coalesce(job.id, archived.job_id)
FROM pulljobs_message AS message
LEFT JOIN pulljobs_job AS job ON job.message_id = message.id
LEFT JOIN pulljobs_archived_job AS archived ON archived.message_id = message.id
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
    """Load that publishes, pulls and acks over HTTP, and records the answers."""

    def __init__(self, base: str, directory: Path) -> None:
        self.root, self.stopping = f"{base}/channel/orders", False
        self.pen = HistoryWriter(directory, "callers")
        self.published: set[str] = set()
        self.delivered = 0
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
        consumer, since = f"{self.root}/consumer/census", time.monotonic()
        answer = client.post(f"{consumer}/pull", json={"Batch": 5, "Expires": 1}, headers=CENSUS)
        if not self._answered("pull", answer, 200) or not (jobs := answer.json()["Result"]):
            return
        held = [_entry(job) for job in jobs]
        self.pen.write(CLAIMED, held, since=since, seconds=jobs[0]["LeaseSeconds"])
        for event, outcome in ((STARTED, "-"), (ENDED, "-"), (SENT, "deliver")):
            self.pen.write(event, [entry._replace(outcome=outcome) for entry in held])
        since = time.monotonic()
        body = [outcome_of(job, "DELIVERED") for job in jobs]
        acked = client.post(f"{consumer}/ack", json={"Results": body}, headers=CENSUS)
        if self._answered("ack", acked, 200):
            oks = [result["Status"] == "ok" for result in acked.json()["Results"]]
            results = [DELIVERED if ok else LOST for ok in oks]
            answered = [
                entry._replace(outcome=result) for entry, result in zip(held, results, strict=True)
            ]
            self.pen.write(ANSWERED, answered, since=since)
            self.delivered += sum(oks)

    def _answered(self, call: str, answer: httpx.Response, success: int) -> bool:
        """Return True if the call succeeded, and False for a 503 with Retry-After. Else fail."""
        if answer.status_code == success:
            self.served[call] += 1
            return True
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1"), answer.text
        self.unavailable[call] += 1
        time.sleep(0.05)
        return False


def _entry(job: Any) -> Entry:
    held = ids.decode(job["ID"]), job["LeaseToken"]
    return Entry(*held, "-", job["RetryCount"], job["Deliveries"])


def test_the_database_goes_and_comes_back_under_load(tmp_path: Path) -> None:
    """In an outage of the database, answers are 503 with Retry-After, and no job is lost."""
    with project() as made:
        kept = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"}
        settings = {"DJANGO_SETTINGS_MODULE": "tests.api.leases.settings"}
        environment = {
            **kept,
            **second.NOT,
            **made.environment,
            **settings,
            "SERVED_DATABASE": "pulljobs",
        }
        starter = made.user()
        starter.connect()
        prepared = subprocess.run(
            [sys.executable, "-c", PREPARE], env=environment, check=True, capture_output=True
        )
        run = Path(prepared.stdout.decode().strip())
        url = f"postgres:///pulljobs?{urlencode({'host': run, 'user': 'pulljobs'})}"
        # By its address: a request for it must not start the server.
        with site({"SERVED_DATABASE": "pulljobs", "DATABASE_URL": url, **second.NOT}) as served:
            load = Load(served.base, tmp_path)
            wait_until(lambda: load.delivered > 50, 3 * PATIENCE_SECONDS)
            kill_server(run)
            wait_until(
                lambda: min(load.unavailable[call] for call in ("publish", "pull")) > 5,
                3 * PATIENCE_SECONDS,
            )
            starter.connect()
            before = Counter(load.served)
            wait_until(
                lambda: min((load.served - before)[call] for call in ("publish", "ack")) > 20,
                3 * PATIENCE_SECONDS,
            )
            load.stopping = True
            for thread in load.threads:
                thread.result()
            with psycopg.connect(host=str(run), user="pulljobs", dbname="pulljobs") as session:
                made_of: dict[str, int] = dict(session.execute(JOBS).fetchall())
                load.pen.write(PUBLISHED, [Entry(made_of.get(id, -1)) for id in load.published])
                case = Case(history.read_history(tmp_path), tables.read_tables(session), CALLERS)
    # What was in flight waits for the end of its lease, and there is no reaper.
    assert find_faults(case).keys() <= {"all_is_settled"}
    assert len(case.jobs(PUBLISHED)) == len(load.published)


def is_alone() -> bool:
    """Return True if the database has no other session, so that it can be dropped."""
    return not query(
        "SELECT FROM pg_stat_activity WHERE datname = current_database()"
        " AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )
