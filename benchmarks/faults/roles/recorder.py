"""Recorder of requests and answers of an HTTP client, for the checker of histories."""

import json
import time
from typing import Any

import httpx

from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    DELIVERED,
    LOST,
    QUEUED,
    RENEWED,
    SENT,
    Entry,
    HistoryWriter,
)
from pulljobs import ids

EVENTS = {"DELIVERED": "deliver", "RETRY": "retry", "RELEASE": "release", "DEAD": "reject"}
STATES = {"DELIVERED": DELIVERED, "RETRY": QUEUED, "RELEASE": QUEUED, "DEAD": "DEAD"}


class Recorder(httpx.AsyncHTTPTransport):
    """Transport that records claims, renewals and outcomes, with their answers.

    A repeated pull that returns the jobs of an earlier answer is no claim.
    """

    def __init__(self, writer: HistoryWriter) -> None:
        super().__init__()
        self.writer = writer
        self._claimed: set[tuple[str, str]] = set()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        since = time.monotonic()
        asked: Any = json.loads(request.content or b"{}")
        verb = request.url.path.rpartition("/")[2]
        if verb == "ack":
            self.writer.write(
                SENT, [_entry(result, EVENTS[result["Outcome"]]) for result in asked["Results"]]
            )
        response = await super().handle_async_request(request)
        await response.aread()
        if response.status_code == 200:
            self._answered(verb, asked, response.json(), since)
        return response

    def _answered(self, verb: str, asked: Any, answer: Any, since: float) -> None:
        if verb == "pull":
            new = [job for job in answer["Result"] if self._is_new(job)]
            entries = [
                _entry(job)._replace(retry_count=job["RetryCount"], deliveries=job["Deliveries"])
                for job in new
            ]
            if new:
                self.writer.write(CLAIMED, entries, since=since, seconds=new[0]["LeaseSeconds"])
        elif verb == "ack":
            pairs = zip(asked["Results"], answer["Results"], strict=True)
            entries = [
                _entry(job, STATES[job["Outcome"]] if status["Status"] == "ok" else LOST)
                for job, status in pairs
            ]
            self.writer.write(ANSWERED, entries, since=since)
        elif verb == "renew":
            self._note_renewed(asked, answer, since)

    def _note_renewed(self, asked: Any, answer: Any, since: float) -> None:
        for lease, result in zip(asked["Leases"], answer["Results"], strict=True):
            if (seconds := result.get("RemainingSeconds")) is not None:
                self.writer.write(RENEWED, [_entry(lease)], since=since, seconds=seconds)

    def _is_new(self, job: Any) -> bool:
        known = (job["ID"], job["LeaseToken"]) in self._claimed
        self._claimed.add((job["ID"], job["LeaseToken"]))
        return not known


def _entry(given: Any, event: str = "-") -> Entry:
    return Entry(ids.decode(given["ID"]), given["LeaseToken"], event)
