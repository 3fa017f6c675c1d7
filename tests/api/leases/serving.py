"""The API served by uvicorn from this process, and clients that pull from it."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx
import uvicorn
from django.core.asgi import get_asgi_application
from django.db import transaction
from django.db.models import Sum

from pulljobs import ids, pulling
from pulljobs.api.asgi import with_pulls
from pulljobs.api.leases.long_poll import waiters
from pulljobs.models import Job, Lease, PullWaiter
from tests.api.caller import Subscription, publish
from tests.factories import USING
from tests.sessions import PATIENCE_SECONDS, Thread, wait_until

LONG = 50.0
"""Seconds for which a pull of a test waits that must end earlier, for another reason."""


@contextmanager
def served(wrap: Callable[[Any], Any] = with_pulls) -> Iterator[str]:
    """Serve the API from a thread during the block, with the current middleware. Yield its URL."""
    config = uvicorn.Config(wrap(get_asgi_application()), port=0, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_SECONDS)


class Puller:
    """HTTP client of one consumer that pulls by the lease protocol."""

    def __init__(self, client: httpx.Client, base: str, subscription: Subscription) -> None:
        channel, consumer = subscription.channel.name, subscription.consumer.name
        self.base, self.subscription = base, subscription
        self.path = f"/channel/{channel}/consumer/{consumer}"
        self.tokens = {
            "X-Broker-Channel-Token": subscription.channel_token,
            "X-Broker-Consumer-Token": subscription.consumer_token,
        }
        self._client = client

    def post(self, verb: str, body: bytes | None = None, **fields: Any) -> httpx.Response:
        content = json.dumps(fields).encode() if body is None else body
        return self._client.post(
            f"{self.base}{self.path}/{verb}", content=content, headers=self.tokens
        )

    def pull(self, **fields: Any) -> Any:
        """Pull, check that the status is 200, and return the JSON of the answer."""
        answer = self.post("pull", **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def taken(self, **fields: Any) -> Any:
        """Pull, check that the status is 200, and return the jobs of the answer."""
        return self.pull(**fields)["Result"]

    def ack(self, *results: Any, **fields: Any) -> Any:
        answer = self.post("ack", Results=results, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def statuses(self, *results: Any) -> list[str]:
        return [result["Status"] for result in self.ack(*results)["Results"]]

    def renew(self, *jobs: Any, **fields: Any) -> Any:
        leases = [{"ID": job["ID"], "LeaseToken": job["LeaseToken"]} for job in jobs]
        answer = self.post("renew", Leases=leases, **fields)
        assert answer.status_code == 200, answer.text
        return answer.json()["Results"]

    def info(self) -> Any:
        return self.get(f"{self.path}/info")

    def get(self, path: str) -> Any:
        return self._client.get(f"{self.base}{path}", headers=self.tokens).json()

    def long_poll(self, **fields: Any) -> Thread:
        """Start a long poll on a thread. Return the thread once the poll waits and can be woken."""
        with self._one_more():
            return Thread(lambda: self.post("pull", **{"Expires": LONG, **fields}))

    @contextmanager
    def hung_up(self, **fields: Any) -> Iterator[None]:
        """Start a long poll, and close its connection at the end of the block."""
        with self._one_more():
            client = self.send("pull", Expires=LONG, **fields)
        with closing(client):
            yield

    def send(self, verb: str, **fields: Any) -> socket.socket:
        """Send a request, and return its connection without reading the answer."""
        content = json.dumps(fields).encode()
        lines = [f"POST {self.path}/{verb} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in self.tokens.items()]
        lines += [f"Content-Length: {len(content)}", "", ""]
        place = urlsplit(self.base)
        client = socket.create_connection((str(place.hostname), place.port or 0))
        client.sendall("\r\n".join(lines).encode() + content)
        return client

    @contextmanager
    def _one_more(self) -> Iterator[None]:
        before = waiting_pulls()
        yield
        wait_until(lambda: waiting_pulls() > before and waiting() > 0)


def claim_elsewhere(puller: Puller, request_id: str, jobs: int = 1) -> set[str]:
    """Publish jobs and claim them for a RequestID, as another process would. Return their ids."""
    PullWaiter.objects.all().delete()  # So that publishing wakes no waiter.
    elsewhere = pulling.Puller(USING, puller.subscription.consumer, Lease.Via.PULL)
    with transaction.atomic(using=USING):  # Nor does a poll find it.
        published = {ids.encode(publish()) for _ in range(jobs)}
        assert len(elsewhere.claim(jobs, request_id=request_id).jobs) == jobs
    return published


def outcome_of(job: Any, outcome: str, **more: Any) -> dict[str, Any]:
    """Return an item of an ack that reports this outcome of a pulled job."""
    return {"ID": job["ID"], "LeaseToken": job["LeaseToken"], "Outcome": outcome, **more}


def close_waiters() -> None:
    """Close the waiters and wait for the end of their thread, which could disturb the next test."""
    waiters.close()
    wait_until(lambda: "pulljobs-waiting" not in {thread.name for thread in threading.enumerate()})


def wait_briefly(condition: Callable[[], bool]) -> None:
    """Wait for a condition for less time than a long poll takes to end by itself."""
    wait_until(condition, 0.8 * LONG)


def waiting_pulls() -> int:
    """Return the number of pulls that wait in this process."""
    running = waiters.running_waiters()
    return running.waiting if running else 0


def waiting() -> int:
    """Return the number of pulls that wait in all processes, by their rows in the database."""
    return PullWaiter.objects.aggregate(pulls=Sum("waiting"))["pulls"] or 0


def in_flight() -> int:
    return Job.objects.filter(state="INFLIGHT").count()
