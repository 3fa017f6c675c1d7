"""No hot statement scans a table, whatever the planner was told about it and whoever asks."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from pytest_django.plugin import DjangoDbBlocker

from pulljobs.sql import statement
from pulljobs.storage.statements import PLAN_FOR_QUEUES
from tests.days import drop_days
from tests.sessions import FORGET, Session, session

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

JOBS = 60_000
BATCH = 100
FILL = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority,
    state, lease, reason, key)
SELECT n, n % 3, n,
    CASE WHEN n % 10 > 0 THEN now() + n * interval '0.1 s' - interval '1 hour' END,
    0, 0, n % 2,
    CASE n % 10 WHEN 0 THEN 'DEAD' WHEN 1 THEN 'INFLIGHT' ELSE 'QUEUED' END,
    CASE n % 10 WHEN 1 THEN lpad(to_hex(n / 100), 32, '0')::uuid END,
    CASE n % 10 WHEN 0 THEN 'killed' END,
    CASE n % 3 WHEN 2 THEN 'key ' || n / 15 END
FROM generate_series({first}, {last}) AS n;
INSERT INTO pulljobs_exclusive_key (consumer_id, key)
SELECT 2, 'key ' || n FROM generate_series({first} / 15, {last} / 15) AS n
ON CONFLICT DO NOTHING;
INSERT INTO pulljobs_lease (token, consumer_id, door, claimed_at, leased_until, hard_end, job_ids)
SELECT lpad(to_hex(n / 100), 32, '0')::uuid, 1, 'worker', now(), now() + n * interval '1 s', now(),
    array_agg(n)
FROM generate_series({first}, {last}) AS n WHERE n % 10 = 1 GROUP BY n;
INSERT INTO pulljobs_archived_job
    (job_id, message_id, consumer_id, created_at, settled_at, retry_count, deliveries,
    state, lease_token)
SELECT n, n, 1, now(), now(), 0, 1, 'DELIVERED', gen_random_uuid()
FROM generate_series({first}, {last}) AS n;
INSERT INTO pulljobs_message
    (id, channel_id, published_at, priority, content_type, headers, payload)
SELECT n, 1, now(), 0, '', '{{}}', '' FROM generate_series({first}, {last}) AS n
"""
TABLES = (
    "pulljobs_job",
    "pulljobs_exclusive_key",
    "pulljobs_lease",
    "pulljobs_archived_job_default",
    "pulljobs_message_default",
)
ALL = ", ".join(TABLES)


def fill(known: Session, first: int, last: int) -> None:
    known.execute(FILL.format(first=first, last=last).encode())


TOLD = ("analyzed", "never analyzed", "analyzed when small", "churned")


# Filling takes seconds: with xdist, one process does it, for all the tests that want it so.
@pytest.fixture(
    scope="module",
    params=[pytest.param(told, marks=pytest.mark.xdist_group(f"plans, {told}")) for told in TOLD],
)
def filled(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """The tables with many rows, and what the planner knows of them."""
    with django_db_blocker.unblock(), session() as known:
        drop_days()  # all is in the default partitions, for an empty one is scanned
        known.autocommit = True
        for table in TABLES:
            known.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        known.execute(FORGET)
        try:
            if request.param == "analyzed when small":
                fill(known, 1, 20)
                known.execute(f"ANALYZE {ALL}")
            fill(known, 1_000, 1_000 + JOBS)
            if request.param in {"analyzed", "churned"}:
                known.execute(f"ANALYZE {ALL}")
            if request.param == "churned":
                known.execute("DELETE FROM pulljobs_job WHERE id % 50 > 0")
                known.execute("DELETE FROM pulljobs_lease WHERE id % 50 > 0")
                fill(known, 100_000, 100_000 + JOBS)
            yield request.param
        finally:
            known.execute(
                "TRUNCATE pulljobs_job, pulljobs_lease, pulljobs_archived_job, pulljobs_message,"
                " pulljobs_exclusive_key"
            )
            for table in TABLES:
                known.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")


@pytest.fixture(
    scope="module",
    params=["dedicated", "dedicated, custom plans", "plain", "plain, generic plans"],
)
def planner(request: pytest.FixtureRequest, filled: str) -> Iterator[Session]:
    with session() as asking:
        asking.autocommit = True
        if request.param.startswith("dedicated"):
            asking.execute(PLAN_FOR_QUEUES)
        if request.param.endswith("custom plans"):
            asking.execute("SET plan_cache_mode = force_custom_plan")
        if request.param.endswith("generic plans") or filled == "analyzed when small":
            # Custom plans may believe in twenty rows: autovacuum comes after a thousand.
            asking.execute("SET plan_cache_mode = force_generic_plan")
        yield asking


IDS = list(range(1_001, 1_001 + 10 * BATCH, 10))
TOKENS = [uuid4() for _claim in range(4)] * (BATCH // 4)
NOW = datetime.now(UTC)
KEYS = [f"key {number}" for number in range(1_001, 1_001 + BATCH)]
ENTRY = {
    "until": None,
    "priorities": [1, 0],
    "floor_ats": [NOW, NOW],
    "floor_ids": [5_000, 5_000],
    "gap_tops": [32_768, 1, 0],
    "gap_bottoms": [1, 0, -32_769],
}
PARAMS: dict[str, dict[str, Any]] = {
    "claim": {
        "consumer_id": 1,
        "wanted": BATCH,
        "until": None,
        "node_id": None,
        "door": "worker",
        "lease": None,
        "max_lease": timedelta(minutes=15),
        "request_id": None,
        "guarded": False,
        "priorities": [1, 0],
        "floor_ats": [NOW, NOW],
        "floor_ids": [5_000, 5_000],
        "gap_tops": [32_768, 1, 0],
        "gap_bottoms": [1, 0, -32_769],
    },
    "take": {
        "consumer_id": 1,
        "job_id": 1_000,
        "source": "QUEUED",
        "node_id": None,
        "door": "post",
        "lease": timedelta(seconds=30),
        "max_lease": timedelta(minutes=15),
        "incremental_timeout": None,
        "guarded": True,
    },
    "room": {"consumer_id": 1},
    "find_keyed": {"consumer_id": 2, "wanted": BATCH, **ENTRY},
    "lock_keys_to_claim": {"consumer_id": 2, "keys": KEYS, "job_ids": IDS, "wanted": BATCH},
    "claim_keyed": {
        "consumer_id": 2,
        "wanted": BATCH,
        "job_ids": IDS,
        "job_keys": KEYS,
        "keys": KEYS,
        "node_id": None,
        "door": "worker",
        "lease": None,
        "max_lease": timedelta(minutes=15),
        "request_id": None,
        "guarded": False,
    },
    "lock_key_of_job": {"consumer_id": 2, "job_id": 1_001},
    "lock_keys": {"consumer_ids": [2] * BATCH, "keys": KEYS},
    "free_keys": {"consumer_ids": [2] * BATCH, "keys": KEYS, "job_ids": IDS},
    "full_keys": {"channel": "orders", "key": "key 1", "only_consumer_id": None},
    "lock_queued": {"job_ids": IDS},
    "replace": {
        "job_ids": IDS[:1],
        "message_id": 1,
        "priority": 0,
        "delay": None,
        "available_at": None,
    },
    "requested": {"consumer_id": 1, "request_id": "again"},
    "renew": {"job_ids": IDS, "tokens": TOKENS, "lease": None, "running": IDS},
    "finish": {
        "job_ids": IDS,
        "tokens": TOKENS,
        "events": ["deliver", "retry"] * (BATCH // 2),
        "reasons": [None] * BATCH,
        "delays": [None] * BATCH,
        "errors": [None] * BATCH,
        "results": [None] * BATCH,
        "started": [None] * BATCH,
    },
    "deliver": {"token": TOKENS[0], "job_ids": IDS},
    "settled": {"job_ids": IDS, "tokens": TOKENS},
    "reschedule": {"job_ids": IDS, "at": NOW},
    "kill": {"job_ids": IDS, "states": ["QUEUED", "INFLIGHT"], "reason": "killed", "error": None},
    "redrive": {"job_ids": IDS},
    "delete": {"job_ids": IDS},
    "expired": {"leases": 20},
    "end_leases": {"lease_ids": list(range(20))},
    "messages": {"ids": IDS[:50], "lowest": IDS[0], "highest": IDS[49]},
    "stats": {"consumer_id": 1, "cap": 100},
    "queued": {
        "consumer_id": 1,
        "wanted": BATCH,
        "priorities": [1, 0],
        "floor_ats": [NOW, NOW],
        "floor_ids": [5_000, 5_000],
        "gap_tops": [32_768, 1, 0],
        "gap_bottoms": [1, 0, -32_769],
    },
    "counts": {"consumer_ids": [1, 2], "cap": 100},
    "delivered": {"settlements": 100},
    "backlog": {"consumer_ids": [1, 2], "cap": 100},
    "newest_dead": {"consumer_ids": [1, 2], "wanted": 100},
    "recent": {
        "lows": [1_000, 2_000],
        "highs": [2_000, 3_000],
        "slices": [0, 1],
        "first": 1_000,
        "last": 3_000,
        "cap": 100,
        "timed": 50,
    },
}
SMALL = {"pulljobs_consumer", "pulljobs_channel"}


def plan(planner: Session, name: str) -> list[dict[str, Any]]:
    """The nodes of the plan that a prepared statement gets in this session."""
    params, names = PARAMS[name], list(PARAMS[name])
    text = re.sub(r"%\((\w+)\)s", lambda one: f"${names.index(one[1]) + 1}", statement(name))
    planner.execute(f"PREPARE asked AS {text}".encode())
    try:
        literals = sql.SQL(", ").join(map(sql.Literal, params.values()))
        explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE asked ({})").format(literals)
        row = psycopg.ClientCursor(planner).execute(explain).fetchone()
    finally:
        planner.execute("DEALLOCATE asked")
    assert row
    told = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return list(nodes(told[0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from nodes(below)


@pytest.mark.parametrize("name", PARAMS)
def test_no_table_is_scanned(planner: Session, name: str) -> None:
    scans = [
        (node["Node Type"], node["Relation Name"])
        for node in plan(planner, name)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL
    ]
    if name in {"stats", "room", "counts", "backlog"} or not is_dedicated(planner):
        # There are as many leases as claims in flight: there it is a matter of taste.
        scans = [scan for scan in scans if scan[1] != "pulljobs_lease"]
    assert scans == []


def is_dedicated(planner: Session) -> bool:
    return planner.execute("SHOW enable_seqscan").fetchone() == ("off",)


def test_a_claim_enters_the_index_at_the_floor(planner: Session) -> None:
    walks = [
        node["Index Cond"]
        for node in plan(planner, "claim")
        if node.get("Index Name") == "pulljobs_job_claim" and "Index Cond" in node
    ]
    at_the_floor = [cond for cond in walks if "ROW(" in cond and "floor_at" in cond]
    assert len(at_the_floor) >= 2, walks
    assert all("priority =" in cond for cond in at_the_floor)
    assert not [
        node
        for node in plan(planner, "claim")
        if node.get("Index Name") == "pulljobs_job_claim" and "Index Cond" not in node
    ]


def test_points_are_written_by_the_primary_key(planner: Session) -> None:
    for name in (
        "finish",
        "deliver",
        "expired",
        "renew",
        "kill",
        "redrive",
        "reschedule",
        "delete",
    ):
        assert indexes_of_jobs(planner, name) == {"pulljobs_job_pkey"}, name


def test_keys_are_found_by_their_own_index(planner: Session) -> None:
    """Jobs of other keys, parked or not, are never read."""
    for name in ("take", "claim_keyed", "free_keys"):
        used = indexes_of_jobs(planner, name)
        assert used == {"pulljobs_job_pkey", "pulljobs_job_key"}, name


def indexes_of_jobs(planner: Session, name: str) -> set[str]:
    names = (node.get("Index Name", "") for node in plan(planner, name))
    return {one for one in names if one.startswith("pulljobs_job_")}


@pytest.mark.parametrize("name", ["claim", "finish", "deliver"])
def test_ids_are_found_in_a_hash_however_many_are_expected(planner: Session, name: str) -> None:
    planner.execute("SET work_mem = '64kB'")
    try:
        nodes = plan(planner, name)
    finally:
        planner.execute("RESET work_mem")
    # Of a claim's lease it is looked whether members are left, not for one.
    others = [node for node in nodes if node.get("Relation Name") != "pulljobs_lease"]
    sought = [told for node in others if "SubPlan" in (told := node.get("Filter", ""))]
    assert sought
    assert all("hashed SubPlan" in told for told in sought)
