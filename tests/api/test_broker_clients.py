"""Clients as written for the webhook-broker work against a server process of pulljobs."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connections
from django.utils.dateparse import parse_datetime
from django.utils.http import http_date
from rest_framework.authtoken.models import Token

from example_project.state import BASE_DIR
from tests.api.broker_clients import OldConsumer, OldProducer
from tests.api.leases.processes import STARTING_SECONDS
from tests.sessions import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]
SERVERS = {
    "wsgi": ["manage.py", "runserver", "--noreload", "127.0.0.1:0"],
    "asgi": ["-m", "uvicorn", "--port", "0", "example_project.asgi:application"],
}
PLACE = re.compile(r"http://127\.0\.0\.1:[1-9]\d*")


@contextmanager
def serving(kind: str, log: Path) -> Iterator[str]:
    """Start a server, under "wsgi" or "asgi", on the test's database. Yield its base URL."""
    known = connections["default"].get_connection_params()
    place = {key: known[key] for key in ("host", "port", "user", "password") if known.get(key)}
    url = f"postgres:///{known['dbname']}?{urlencode(place)}"
    environment = {**os.environ, "DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *SERVERS[kind]],
            cwd=BASE_DIR,
            env=environment,
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(
            lambda: bool(PLACE.search(log.read_text())) or process.poll() is not None,
            STARTING_SECONDS,
        )
        match = PLACE.search(log.read_text())
        assert match, log.read_text()
        yield match[0]
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


class Operator:
    def __init__(self, http: httpx.Client) -> None:
        boss = User.objects.create(username="boss", is_superuser=True)
        self._headers = {"Authorization": f"Token {Token.objects.create(user=boss).key}"}
        self._http = http

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path, headers=self._headers)

    def put(self, path: str, **fields: str) -> Any:
        """PUT a form with the row's Last-Modified, check its new value, and return the body."""
        seen = {"If-Unmodified-Since": self.get(path).headers.get("Last-Modified", "")}
        answer = self._http.put(path, data=fields, headers=self._headers | seen)
        assert answer.status_code == 200, answer.text
        changed_at = parse_datetime(answer.json()["ChangedAt"])
        assert changed_at is not None
        assert http_date(int(changed_at.timestamp())) == answer.headers["Last-Modified"]
        return answer.json()


@pytest.mark.parametrize("kind", list(SERVERS))
def test_a_producer_and_a_consumer(kind: str, tmp_path: Path) -> None:
    """Clients publish, then list, claim and settle jobs by priority, and requeue the dead one."""
    with (
        serving(kind, tmp_path / "server.log") as base,
        httpx.Client(base_url=base, timeout=60) as http,
    ):
        operator = Operator(http)
        channel = operator.put("/channel/orders", token="channel-token", name="Orders")["Token"]
        shop = operator.put("/producer/shop", name="Shop")
        hook = "http://example.com/hook"
        billing = operator.put("/channel/orders/consumer/billing", callbackUrl=hook, type="push")
        billing = operator.put("/channel/orders/consumer/billing", callbackUrl=hook, type="pull")
        producer = OldProducer(
            http,
            "orders",
            {
                "X-Broker-Channel-Token": channel,
                "X-Broker-Producer-ID": shop["ID"],
                "X-Broker-Producer-Token": shop["Token"],
            },
        )
        tokens = {"X-Broker-Channel-Token": channel, "X-Broker-Consumer-Token": billing["Token"]}
        consumer = OldConsumer(http, "orders", "billing", tokens)
        for number, priority in enumerate([0, 9, 5, 5]):
            payload = f"order {number}".encode()
            assert producer.broadcast(payload, f"m-{number}", priority) == 201
        assert producer.broadcast(b"again", "m-0") == 409
        listed = consumer.queued()
        assert consumer.queued(1) == listed[:1]
        expected = ["m-1", "m-2", "m-3", "m-0"]
        assert [job["Message"]["MessageID"] for job in listed] == expected
        assert consumer.work(lambda job: job["Message"]["Payload"] != "order 2") == expected
        assert [consumer.status(job["ID"]) for job in listed] == [
            *["DELIVERED", "DEAD"],
            *["DELIVERED", "DELIVERED"],
        ]
        assert consumer.move(listed[0]["ID"], "DEAD") == 400
        assert consumer.requeue("guessed") == 400
        assert consumer.requeue(billing["Token"]) == 202
        assert consumer.work(lambda job: True) == ["m-2"]
        assert operator.get("/dlq-status").json() == {"consumers": []}
