"""Clients of a producer and a consumer as written for the webhook-broker, without pulljobs in mind.

They do what its own clients do: send bodies without a Content-Type, decode ids of jobs as xids and
fail if they are none, look at status codes and never at texts.
"""

import base64
import json
import struct
import time
from collections.abc import Callable
from typing import Any

import httpx


class OldProducer:
    def __init__(self, http: httpx.Client, channel: str, tokens: dict[str, str]) -> None:
        self._http, self._tokens = http, tokens
        self._path = f"/channel/{channel}/broadcast"

    def broadcast(self, payload: bytes, id: str, priority: int = 0) -> int:
        headers = self._tokens | {
            "X-Broker-Message-ID": id,
            "X-Broker-Message-Priority": str(priority),
        }
        answer = self._http.post(self._path, content=payload, headers=headers)
        assert answer.status_code != 201 or answer.headers["Location"].endswith(f"/message/{id}")
        return answer.status_code


class OldConsumer:
    def __init__(
        self, http: httpx.Client, channel: str, consumer: str, tokens: dict[str, str]
    ) -> None:
        self._http, self._tokens = http, tokens
        self._root = f"/channel/{channel}/consumer/{consumer}"

    def queued(self, limit: int = 100) -> list[dict[str, Any]]:
        answer = self._get("/queued-jobs", limit=limit)
        assert answer.status_code == 200
        jobs: list[dict[str, Any]] = answer.json()["Result"]
        for job in jobs:
            assert abs(made_at(job["ID"]) - time.time()) < 600
        return jobs

    def move(self, job: str, state: str, **more: int) -> int:
        body = json.dumps({"NextState": state, **more}).encode()
        answer = self._http.post(f"{self._root}/job/{job}", content=body, headers=self._tokens)
        assert "Content-Type" not in answer.request.headers
        return answer.status_code

    def status(self, job: str) -> str:
        answer = self._get(f"/job/{job}")
        assert answer.status_code == 200
        return str(answer.json()["Status"])

    def requeue(self, token: str) -> int:
        return self._http.post(f"{self._root}/dlq", data={"requeue": token}).status_code

    def _get(self, path: str, **query: int) -> httpx.Response:
        return self._http.get(f"{self._root}{path}", params=query, headers=self._tokens)

    def work(self, do: Callable[[dict[str, Any]], bool]) -> list[str]:
        """Take jobs until none is queued: report DELIVERED if `do` returns True, else DEAD.

        Return the message ids of the jobs that were taken, in order.
        """
        done = []
        while jobs := self.queued():
            for job in jobs:
                if self.move(job["ID"], "INFLIGHT", IncrementalTimeout=10) != 202:
                    continue
                done.append(job["Message"]["MessageID"])
                state = "DELIVERED" if do(job) else "DEAD"
                assert self.move(job["ID"], state) == 202
        return done


def made_at(xid: str) -> int:
    """Return the time in a globally unique `xid`, in seconds since 1970, or raise ValueError."""
    if len(xid) != 20 or xid.strip("0123456789abcdefghijklmnopqrstuv"):
        raise ValueError(xid)
    packed = base64.b32hexdecode(f"{xid.upper()}====")
    seconds: int = struct.unpack(">I", packed[:4])[0]
    return seconds
