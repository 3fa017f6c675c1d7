"""Requests a second of the API under uvicorn, beside a bare view that answers as many bytes."""

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from django.db import connection

from benchmarks.callers import TOKEN, Call, Timed, timed
from benchmarks.database import consumer, own_database, query
from benchmarks.listing import FILL
from benchmarks.long_poll import served
from benchmarks.report import Table, percentiles, tell
from pulljobs import ids

ROOT: Final = "/channel/bench/consumer/noop"
BARE: Final = "benchmarks.bare_asgi:application"
BATCHES: Final = (1, 10, 100)
ACKED: Final = 100
SHARE: Final = 4
"""No measurement takes more than the fourth part of what waits."""


def run(options: argparse.Namespace) -> None:
    tables: dict[str, Table] = {}
    with own_database(), served() as (_, port), served(BARE) as (_, bare):
        give_tokens()
        for backlog in options.backlogs:
            tables[f"{backlog:,} queued, {options.clients} clients"] = [
                _row(name, ours, bare, options.clients)
                for name, ours in _measured(port, backlog, options.requests, options.clients)
            ]
    first, *_others, last = (
        {row["request"]: row["a second"] for row in table}
        for table in (*tables.values(), *tables.values())
    )
    ratios = {f"ratio_{name.replace(' ', '_')}": last[name] / first[name] for name in first}
    tell(tables, ratios, as_json=options.json)


def _measured(port: int, backlog: int, most: int, clients: int) -> Iterator[tuple[str, Timed]]:
    """In the order of what they leave behind."""
    fill(backlog)
    listing = Call("GET", f"{ROOT}/queued-jobs")
    yield "queued-jobs", timed(port, [listing] * most, clients)
    yield "job POST", timed(port, _takes(min(most, backlog // SHARE)), clients)
    for batch in BATCHES:
        fill(backlog)
        pulls = [_pull(batch)] * max(clients, min(most, backlog // SHARE // batch))
        yield f"pull of {batch}", timed(port, pulls, clients)
    fill(backlog)
    count = max(clients, min(most, backlog // SHARE // ACKED))
    pulled = timed(port, [_pull(ACKED)] * count, clients)
    yield f"ack of {ACKED}", timed(port, [_ack(answer) for answer in pulled.answers], clients)


def _row(name: str, ours: Timed, bare: int, clients: int) -> dict[str, Any]:
    print(f"{name}: {ours.rate:.0f} a second", file=sys.stderr)
    same_size = [Call("POST", f"/?{ours.size}", b"x" * 100)] * max(500, len(ours.seconds))
    baseline = timed(bare, same_size, clients)
    p50, p99 = percentiles(ours.seconds)
    bare_p50, _bare_p99 = percentiles(baseline.seconds)
    return {
        "request": name,
        "requests": len(ours.seconds),
        "bytes": ours.size,
        "a second": ours.rate,
        "p50 ms": p50,
        "p99 ms": p99,
        "bare a second": baseline.rate,
        "bare p50 ms": bare_p50,
        "of bare": ours.rate / baseline.rate,
    }


def give_tokens() -> None:
    one = consumer()
    for party in (one, one.channel):
        party.set_token(TOKEN)
        party.save()


def fill(backlog: int) -> None:
    """Up to so many that wait."""
    [(queued,)] = query("SELECT count(*) FROM pulljobs_job WHERE state = 'QUEUED'")
    one = consumer()
    with connection.cursor() as cursor:
        cursor.execute(
            FILL,
            {
                "channel": one.channel_id,
                "consumer": one.pk,
                "priorities": 1,
                "count": backlog - int(str(queued)),
                "due": "0",
            },
        )
    query("VACUUM ANALYZE pulljobs_job, pulljobs_message")


def _takes(count: int) -> list[Call]:
    """The last of those that wait, so that claims meet the others."""
    rows = query(
        "SELECT id FROM pulljobs_job WHERE state = 'QUEUED' ORDER BY available_at DESC, id DESC"
        f" LIMIT {count}"
    )
    body = json.dumps({"NextState": "INFLIGHT", "IncrementalTimeout": 3600}).encode()
    return [Call("POST", f"{ROOT}/job/{ids.encode(int(str(id)))}", body) for (id,) in rows]


def _pull(batch: int) -> Call:
    wanted = {"Batch": batch, "IncrementalTimeout": 3600}
    return Call("POST", f"{ROOT}/pull", json.dumps(wanted).encode())


def _ack(pulled: bytes) -> Call:
    results = [
        {"ID": job["ID"], "LeaseToken": job["LeaseToken"], "Outcome": "DELIVERED"}
        for job in json.loads(pulled)["Result"]
    ]
    return Call("POST", f"{ROOT}/ack", json.dumps({"Results": results}).encode())
