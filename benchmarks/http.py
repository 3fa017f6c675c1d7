"""Requests a second of the API, of a bare ASGI application, and of one that only runs its SQL."""

import argparse
import json
import sys
from collections.abc import Iterator
from statistics import median
from typing import Any, Final

from django.db import connection

from benchmarks.callers import TOKEN, Call, Timed, time_calls
from benchmarks.database import consumer, own_database, query
from benchmarks.listing import FILL
from benchmarks.long_poll import served
from benchmarks.report import Table, percentiles, print_report
from pulljobs import ids

ROOT: Final = "/channel/bench/consumer/noop"
BARE: Final = "benchmarks.bare_asgi:application"
SAME_SQL: Final = "benchmarks.sql_asgi:application"
BATCHES: Final = (1, 10, 100)
ACKED: Final = 100
SHARE: Final = 4
"""Divisor of the backlog: a series of pulls takes a quarter of it, or a pull for each client."""


def run(options: argparse.Namespace) -> None:
    """Print the rates of the API, with ratios to the bare SQL and to the bare application."""
    tables: dict[str, Table] = {}
    with own_database(), served() as (_, port), served(BARE) as (_, bare):
        give_tokens()
        with served(SAME_SQL) as (_, same_sql):
            pulled = [_pull_and_ack(port, same_sql, batch, options) for batch in BATCHES]
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
    ratios |= {f"of_same_sql_{row['jobs of a pull']}": row["of the same SQL"] for row in pulled}
    tables[f"Pull and ack, {options.clients} clients"] = pulled
    print_report(tables, ratios, as_json=options.json)


def _pull_and_ack(
    port: int, same_sql: int, batch: int, options: argparse.Namespace
) -> dict[str, Any]:
    """Pull and ack jobs by the API and by bare SQL alternately. Return a row with both rates."""
    jobs = batch * options.requests
    seconds: dict[int, list[float]] = {port: [], same_sql: []}
    for server in (port, same_sql) * (options.rounds + 1):
        fill(2 * jobs)
        pulled = time_calls(server, [_pull(batch)] * options.requests, options.clients)
        acks = [_ack(answer) for answer in pulled.answers]
        acked = time_calls(server, acks, options.clients)
        seconds[server].append(pulled.elapsed + acked.elapsed)
    ours, theirs = (median(took[1:]) for took in seconds.values())  # The first warms up.
    return {
        "jobs of a pull": batch,
        "requests a second": 2 * options.requests / ours,
        "jobs a second": jobs / ours,
        "same SQL, jobs a second": jobs / theirs,
        "of the same SQL": theirs / ours,
    }


def _measured(port: int, backlog: int, most: int, clients: int) -> Iterator[tuple[str, Timed]]:
    """Yield the name and the times of each kind of request, the listing of queued jobs first."""
    fill(backlog)
    listing = Call("GET", f"{ROOT}/queued-jobs")
    yield "queued-jobs", time_calls(port, [listing] * most, clients)
    yield "job POST", time_calls(port, _takes(min(most, backlog // SHARE)), clients)
    for batch in BATCHES:
        fill(backlog)
        pulls = [_pull(batch)] * max(clients, min(most, backlog // SHARE // batch))
        yield f"pull of {batch}", time_calls(port, pulls, clients)
    fill(backlog)
    count = max(clients, min(most, backlog // SHARE // ACKED))
    pulled = time_calls(port, [_pull(ACKED)] * count, clients)
    yield f"ack of {ACKED}", time_calls(port, [_ack(answer) for answer in pulled.answers], clients)


def _row(name: str, ours: Timed, bare: int, clients: int) -> dict[str, Any]:
    print(f"{name}: {ours.rate:.0f} a second", file=sys.stderr)
    same_size = [Call("POST", f"/?{ours.size}", b"x" * 100)] * max(500, len(ours.seconds))
    baseline = time_calls(bare, same_size, clients)
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
    """Give the consumer and its channel the token that the calls send."""
    noop = consumer()
    for row in (noop, noop.channel):
        row.set_token(TOKEN)
        row.save()


def fill(backlog: int) -> None:
    """Queue jobs until there are `backlog` of them."""
    [(queued,)] = query("SELECT count(*) FROM pulljobs_job WHERE state = 'QUEUED'")
    noop = consumer()
    with connection.cursor() as cursor:
        cursor.execute(
            FILL,
            {
                "channel": noop.channel_id,
                "consumer": noop.pk,
                "priorities": 1,
                "count": backlog - int(str(queued)),
                "due": "0",
            },
        )
    query("VACUUM ANALYZE pulljobs_job, pulljobs_message")


def _takes(count: int) -> list[Call]:
    """Return calls of the job POST that claim the last jobs of the queue by their ids."""
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
