"""A broker in memory, for `httpx.MockTransport`: as much of the API as the client speaks."""

import asyncio
import gzip
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx

TOKENS = {
    "X-Broker-Channel-Token": "orders-token",
    "X-Broker-Consumer-Token": "census-of-orders-token",
}
LEASE = 30.0


@dataclass
class FakeJob:
    id: str
    message: dict[str, Any]
    key: str | None
    priority: int
    state: str = "QUEUED"
    deliveries: int = 0
    retry_count: int = 0
    lease_token: str = ""
    leased_until: float = 0.0
    hard_end: float = 0.0
    due: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Request:
    at: float
    """Seconds of the monotonic clock at which the request came."""
    path: str
    headers: httpx.Headers
    body: Any


@dataclass
class FakeBroker:
    """Broker in memory. A test can set functions that make requests fail or lose answers.

    `failing` is called before a request is carried out, and may answer or raise in its place.
    After the broker did its work, the answer is lost if `lost` returns True.
    """

    jobs: list[FakeJob] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    failing: Callable[[Request], httpx.Response | None] = lambda request: None
    lost: Callable[[Request], bool] = lambda request: False
    limits: dict[str, Any] = field(default_factory=dict)
    addresses: list[str] = field(default_factory=list)
    paused: bool = False
    longest_lease: float = math.inf
    """Seconds from a claim to the hard end of its lease."""
    published: set[str] = field(default_factory=set)
    claims: dict[str, list[FakeJob]] = field(default_factory=dict)
    locked_jobs: set[str] = field(default_factory=set)
    """Ids of jobs whose rows another transaction has locked, so that no ack settles them."""
    locked_leases: set[str] = field(default_factory=set)
    """Ids of jobs whose lease another transaction has locked, so that it is not renewed."""
    held: list[int] = field(default_factory=list)
    """Numbers of jobs in flight after each pull."""

    def answer(self, request: httpx.Request) -> httpx.Response:
        asked = self._noted(request)
        until = time.monotonic() + _expires(asked)
        while (response := self._respond(asked, until)) is None:
            time.sleep(0.005)
        return response

    async def answer_async(self, request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0)
        asked = self._noted(request)
        until = time.monotonic() + _expires(asked)
        while (response := self._respond(asked, until)) is None:
            await asyncio.sleep(0.005)
        return response

    def publish(self, count: int, start: int = 0) -> None:
        for number in range(start, start + count):
            self._accept({"MessageID": f"m{number}", "Payload": str(number)})

    def asked(self, what: str) -> list[Request]:
        return [request for request in self.requests if request.path.rpartition("/")[2] == what]

    def states(self) -> list[str]:
        return [job.state for job in self.jobs]

    @property
    def in_flight(self) -> int:
        return self.states().count("INFLIGHT")

    def _noted(self, request: httpx.Request) -> Request:
        body = request.content
        if request.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        lines = request.url.path.endswith("broadcast-batch")
        read = (
            [json.loads(line) for line in body.split(b"\n")] if lines else json.loads(body or "{}")
        )
        asked = Request(time.monotonic(), request.url.path, request.headers, read)
        self.requests.append(asked)
        return asked

    def _respond(self, asked: Request, until: float) -> httpx.Response | None:
        """Return the answer to a request, or None if a long poll has nothing to answer yet."""
        if (failure := self.failing(asked)) is not None:
            return failure
        if refusal := self._refusal(asked):
            return refusal
        what = asked.path.rpartition("/")[2].replace("-", "_")
        content = getattr(self, f"_{what}")(asked.body)
        if what == "pull" and not content["Result"] and time.monotonic() < until:
            return None
        if self.lost(asked):
            raise httpx.RemoteProtocolError("Server disconnected without sending a response.")
        return httpx.Response(200, json=content)

    def _refusal(self, asked: Request) -> httpx.Response | None:
        if not asked.path.startswith(("/channel/orders", "/lookup")):
            return _problem(404, "There is no such channel: check its name in the URL.")
        if asked.headers.get("X-Broker-Channel-Token") != "orders-token":
            return _problem(
                403, "X-Broker-Channel-Token is missing or wrong: send the token of the channel."
            )
        results = asked.body.get("Results", []) if isinstance(asked.body, dict) else []
        if any(not 0 <= result.get("DelaySeconds", 0) <= 3600 for result in results):
            return _problem(400, "DelaySeconds must be a number of seconds from 0.")
        return self._above_limit(asked)

    def _above_limit(self, asked: Request) -> httpx.Response | None:
        most = self.limits.get("MaxBatch", 100)
        if isinstance(asked.body, list):
            return _problem(413, f"There are more than {most}.") if len(asked.body) > most else None
        for name, limit in (("Batch", most), ("Expires", self.limits.get("MaxExpires", 60.0))):
            if asked.body.get(name, 0) > limit:
                return _problem(409, f"{name} is above {limit}: ask for less.")
        rows = asked.body.get("Results", asked.body.get("Leases", []))
        return _problem(400, f"More than {most} entries") if len(rows) > most else None

    def _lookup(self, body: Any) -> Any:
        return {"Addresses": self.addresses, "Consumers": []}

    def _info(self, body: Any) -> Any:
        usual = {"MaxBatch": 100, "MaxExpires": 60.0, "MaxInFlight": None, "LeaseSeconds": LEASE}
        counts = {"NumInFlight": self.in_flight, "NumQueued": self.states().count("QUEUED")}
        return counts | usual | {"Now": _moment(0)} | self.limits

    def _pull(self, body: Any) -> Any:
        request_id, fits = body["RequestID"], "MaxBytes" not in body
        known = self.claims.get(request_id)
        if known is not None:
            jobs = [job for job in known if job.state == "INFLIGHT"]
        else:
            jobs = self._claim(request_id, body["Batch"]) if fits and not self.paused else []
        reason = "ok" if jobs else "paused" if self.paused else "no_messages"
        return {"Result": [self._content(job) for job in jobs], "Status": {"Reason": reason}}

    def _claim(self, request_id: str, batch: int) -> list[FakeJob]:
        now, token = time.monotonic(), str(uuid4())
        self._expire(now)
        ready = [job for job in self.jobs if job.state == "QUEUED" and job.due <= now]
        jobs = sorted(ready, key=lambda job: -job.priority)[:batch]
        for job in jobs:
            job.state, job.lease_token, job.leased_until = "INFLIGHT", token, now + self._lease
            job.hard_end = now + self.longest_lease
            job.deliveries += 1
        if jobs:
            self.claims[request_id] = jobs
        self.held.append(self.in_flight)
        return jobs

    def _ack(self, body: Any) -> Any:
        return {"Results": [self._settled(result) for result in body["Results"]]}

    def _settled(self, result: Any) -> Any:
        for job in self.jobs:
            if job.id == result["ID"]:
                if job.id in self.locked_jobs:
                    return {"ID": job.id, "Status": "locked"}
                status = "ok" if self._settle(job, result) else "lease_lost"
                return {"ID": job.id, "Status": status}
        return {"ID": result["ID"], "Status": "not_found"}

    def _settle(self, job: FakeJob, result: Any) -> bool:
        outcome = result["Outcome"]
        if job.lease_token != result["LeaseToken"] or job.state != "INFLIGHT":
            return bool(job.lease_token == result["LeaseToken"] and job.state == outcome)
        if outcome in ("DELIVERED", "DEAD"):
            job.state, job.error = outcome, result.get("Reason", "")
            return True
        job.state, job.lease_token = "QUEUED", ""
        job.due = time.monotonic() + result.get("DelaySeconds", 0)
        if outcome == "RETRY":
            job.retry_count, job.error = job.retry_count + 1, result.get("Reason", "")
        else:
            job.deliveries -= 1
        return True

    def _renew(self, body: Any) -> Any:
        return {"Results": [self._renewed(lease, body.get("Seconds")) for lease in body["Leases"]]}

    def _renewed(self, result: Any, seconds: float | None) -> Any:
        if result["ID"] in self.locked_leases:
            return {"ID": result["ID"], "Status": "locked"}
        for job in self.jobs:
            if (
                job.id == result["ID"]
                and job.lease_token == result["LeaseToken"]
                and job.state == "INFLIGHT"
                and job.hard_end > time.monotonic()
            ):
                left = min(seconds or self._lease, job.hard_end - time.monotonic())
                job.leased_until = time.monotonic() + left
                return {"ID": job.id, "Status": "ok", "RemainingSeconds": left}
        return {"ID": result["ID"], "Status": "lease_lost"}

    def _broadcast_batch(self, body: Any) -> Any:
        return {"Results": [self._line(number, line) for number, line in enumerate(body, 1)]}

    def _line(self, number: int, line: Any) -> Any:
        if not line.get("Payload") and not line.get("PayloadBase64"):
            sentence = "Payload and PayloadBase64 are text, and not empty."
            return {"Line": number, "MessageID": None, "Status": "invalid", "Error": sentence}
        status = "duplicate" if line["MessageID"] in self.published else "accepted"
        if status == "accepted":
            self._accept(line)
        return {"Line": number, "MessageID": line["MessageID"], "Status": status}

    def _accept(self, line: Any) -> None:
        self.published.add(line["MessageID"])
        encoded = line.get("PayloadBase64")
        message = {
            "MessageID": line["MessageID"],
            "Payload": encoded or line["Payload"],
            "PayloadEncoding": "base64" if encoded else None,
            "ContentType": line.get("ContentType", "text/plain"),
            "Headers": line.get("Headers", {}),
            "PublishedAt": _moment(0),
        }
        job = FakeJob(f"j{len(self.jobs)}", message, line.get("Key"), line.get("Priority", 0))
        self.jobs.append(job)

    def _expire(self, now: float) -> None:
        for job in self.jobs:
            if job.state == "INFLIGHT" and job.leased_until <= now:
                job.state, job.lease_token = "QUEUED", ""
                job.retry_count += 1

    def _content(self, job: FakeJob) -> Any:
        return {
            "ID": job.id,
            "Priority": job.priority,
            "RetryCount": job.retry_count,
            "Deliveries": job.deliveries,
            "Key": job.key,
            "LeaseToken": job.lease_token,
            "LeaseExpiresAt": _moment(job.leased_until - time.monotonic()),
            "LeaseSeconds": self._lease,
            "Message": job.message,
        }

    @property
    def _lease(self) -> float:
        return float(self.limits.get("LeaseSeconds", LEASE))


def _problem(status: int, detail: str) -> httpx.Response:
    return httpx.Response(status, json={"detail": detail, "code": "of_a_test"})


def _moment(ahead: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat()


def _expires(asked: Request) -> float:
    if not asked.path.endswith("/pull") or asked.body.get("NoWait"):
        return 0.0
    return float(asked.body.get("Expires", 0))


def gaps(moments: list[float]) -> Iterator[float]:
    for first, second in zip(moments, moments[1:], strict=False):
        yield second - first
