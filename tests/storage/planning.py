"""Plans of statements: parameters for each, and what the planner makes of them."""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from pulljobs import ids
from pulljobs.engine.sql import statement
from tests.sessions import Session

BATCH = 100
TABLES = (
    "pulljobs_job",
    "pulljobs_exclusive_key",
    "pulljobs_flow_key",
    "pulljobs_lease",
    "pulljobs_archived_job_default",
    "pulljobs_message_default",
    "pulljobs_settlement_count",
)
ALL = ", ".join(TABLES)


IDS = list(range(1_001, 1_001 + 10 * BATCH, 10))
TOKENS = [uuid4() for _claim in range(4)] * (BATCH // 4)
NOW = datetime.now(UTC)
KEYS = [f"key {number}" for number in range(1_001, 1_001 + BATCH)]
FLOORS: dict[str, Any] = {
    "priorities": [1, 0],
    "mark_ats": [NOW, NOW],
    "mark_ids": [5_000, 5_000],
    "gap_tops": [32_768, 1, 0],
    "gap_bottoms": [1, 0, -32_769],
}
ENTRY: dict[str, Any] = {"until": None, **FLOORS}
TERMS: dict[str, Any] = {
    "node_id": None,
    "via": "worker",
    "lease_duration": None,
    "max_lease": timedelta(minutes=15),
}
GUARDED: dict[str, Any] = {"request_id": None, "guarded": False}
UNCOUNTED: dict[str, Any] = {
    "low": ids.first_of(NOW),
    "high": 2**63 - 1,
    "cap": None,
    "is_recount": False,
}
PARAMS: dict[str, dict[str, Any]] = {
    "claim": {
        "consumer_id": 1,
        "wanted": BATCH,
        **TERMS,
        **GUARDED,
        **ENTRY,
    },
    "claim_level": {
        "consumer_id": 1,
        "wanted": BATCH,
        **TERMS,
        "priority": 0,
        "mark_at": NOW,
        "mark_id": 5_000,
        "few": 10,
        "lowest": 1,
        "highest": 20_000,
    },
    "take": {
        "consumer_id": 1,
        "job_id": 1_000,
        "source": "QUEUED",
        "node_id": None,
        "via": "post",
        "lease_duration": timedelta(seconds=30),
        "max_lease": timedelta(minutes=15),
        "incremental_timeout": None,
        "guarded": True,
    },
    "lock_group": {"group_id": 1},
    "allowance": {"consumer_id": 1, "group_id": 1},
    "spend": {
        "consumer_id": 1,
        "group_id": 0,
        "job_ids": IDS,
        "tokens": 200.0,
        "per_second": 10.0,
        "burst": 200.0,
        "window_seconds": None,
        "read_at": NOW,
    },
    "give_back": {"job_ids": IDS, "lease_tokens": TOKENS},
    "bucket": {"consumer_id": 1, "group_id": 1},
    "members": {"consumer_ids": [1]},
    "find_keyed": {"consumer_id": 2, "wanted": BATCH, **ENTRY},
    "lock_keys_to_claim": {"consumer_id": 2, "keys": KEYS, "job_ids": IDS, "wanted": BATCH},
    "claim_keyed": {
        "consumer_id": 2,
        "wanted": BATCH,
        "job_ids": IDS,
        "job_keys": KEYS,
        "keys": KEYS,
        **TERMS,
        **GUARDED,
    },
    "lock_key_of_job": {"consumer_id": 2, "job_id": 1_001},
    "lock_keys": {"consumer_ids": [2] * BATCH, "keys": KEYS},
    "free_keys": {"consumer_ids": [2] * BATCH, "keys": KEYS, "job_ids": IDS},
    "discover": {"consumer_id": 1, "wanted": BATCH, **ENTRY},
    "claim_turns": {
        "consumer_id": 1,
        "wanted": BATCH,
        "keys": BATCH,
        "priorities": [1, 0],
        "ring_ranks": [0],
        "ring_marks": ["2020-01-01T00:00Z"],
        "ring_gap_tops": [32_768, 0],
        "ring_gap_bottoms": [0, -32_769],
        **TERMS,
        **GUARDED,
    },
    "lock_turns": {"consumer_ids": [1] * BATCH, "keys": KEYS},
    "free_turns": {"consumer_ids": [1] * BATCH, "keys": KEYS},
    "lock_turn": {"consumer_id": 1, "job_id": 1_002},
    "discover_keys": {"consumer_id": 1, "most": 1_000},
    "jobs_before": {
        "consumer_id": 1,
        "job_id": 1_002,
        "most_keys": 1_000,
        "most_jobs": 10_000,
        "burst": 1.0,
    },
    "turn_of_job": {"consumer_id": 1, "key": "key 1", "cost": 2},
    "hold_turn": {"consumer_id": 1, "key": "key 1", "job_id": 1_002, "cost": 2},
    "give_back_to_keys": {"job_ids": IDS, "lease_tokens": TOKENS},
    "throttle_keys": {"consumer_ids": [1] * BATCH, "keys": KEYS, "seconds": [1.0] * BATCH},
    "keys_of_turns": {"consumer_ids": [1, 2], "cap": 100, "most_keys": 3},
    "full_keys": {"channel": "orders", "key": "key 1", "only_consumer_id": None},
    "lock_queued": {"job_ids": IDS},
    "replace": {
        "job_ids": IDS[:1],
        "message_id": 1,
        "cost": None,
        "priority": 0,
        "delay": None,
        "available_at": None,
    },
    "requested": {"consumer_id": 1, "request_id": "again"},
    "forget_request": {"lease_token": TOKENS[0]},
    "renew": {"job_ids": IDS, "lease_tokens": TOKENS, "lease_duration": None, "running": IDS},
    "finish": {
        "job_ids": IDS,
        "lease_tokens": TOKENS,
        "events": ["deliver", "retry"] * (BATCH // 2),
        "reasons": [None] * BATCH,
        "delays": [None] * BATCH,
        "errors": [None] * BATCH,
        "results": [None] * BATCH,
        "started": [None] * BATCH,
        "max_retries": [None] * BATCH,
        "run_clock": 9.0,
        "run_begins": [7.0] * BATCH,
        "run_seconds": [1.0] * BATCH,
    },
    "deliver": {
        "lease_token": TOKENS[0],
        "job_ids": IDS,
        "run_clock": 9.0,
        "run_begins": [7.0] * BATCH,
        "run_seconds": [1.0] * BATCH,
    },
    "settled": {"job_ids": IDS, "lease_tokens": TOKENS},
    "reschedule": {"job_ids": IDS, "at": NOW},
    "kill": {"job_ids": IDS, "states": ["QUEUED", "INFLIGHT"], "reason": "killed", "error": None},
    "redrive": {"job_ids": IDS},
    "delete": {"job_ids": IDS},
    "expired": {"leases": 20},
    "end_leases": {"lease_ids": list(range(20))},
    "postpone_leases": {"lease_ids": list(range(20)), "running_ids": None},
    "leases_of_node": {"node_id": TOKENS[0]},
    "note_running": {"node_id": TOKENS[0], "running_ids": IDS},
    "locked_jobs": {"job_ids": IDS, "lease_tokens": TOKENS},
    "locked_tokens": {"job_ids": IDS},
    "still_held": {"job_ids": IDS, "lease_tokens": TOKENS},
    "messages": {"ids": IDS[:50], "lowest": IDS[0], "highest": IDS[49]},
    "count_jobs": {"consumer_ids": [1, 2], "cap": 100},
    "dead_times": {"consumer_ids": [1, 2]},
    "queued": {
        "consumer_id": 1,
        "wanted": BATCH,
        **FLOORS,
    },
    "delivered": {"settlements": 100},
    "count_dead": {"consumer_ids": [1, 2], "cap": 100},
    "newest_dead": {"consumer_ids": [1, 2], "wanted": 100},
    "count_settlements": {
        **UNCOUNTED,
        "periods": ["minute", "hour"],
        "widths": [timedelta(minutes=1), timedelta(hours=1)],
        "ages": [timedelta(hours=3), timedelta(days=9)],
    },
    "settlement_history": {
        **UNCOUNTED,
        "cap": 1_000,
        "periods": ["minute", "hour"],
        "since": [NOW - timedelta(hours=1)] * 2,
        "until": [NOW] * 2,
        "are_drawn": [True, False],
        "with_times": [True, True],
        "drawn_ids": [0],
        "listed_ids": [1, 2],
    },
    "settled_since": {
        "low": ids.first_of(NOW),
        "high": 2**63 - 1,
        "since": NOW,
        "cap": 1_000,
    },
    "recent": {
        "lows": [1_000, 2_000],
        "highs": [2_000, 3_000],
        "slices": [0, 1],
        "first": 1_000,
        "last": 3_000,
        "cap": 100,
    },
}


def plan(
    planner: Session, name: str, known: Mapping[str, dict[str, Any]] = PARAMS
) -> list[dict[str, Any]]:
    """Return the plan nodes of a prepared statement, with its parameters from `known[name]`."""
    params, names = known[name], list(known[name])
    text = re.sub(r"%\((\w+)\)s", lambda each: f"${names.index(each[1]) + 1}", statement(name))
    planner.execute(f"PREPARE asked AS {text}".encode())
    try:
        literals = sql.SQL(", ").join(map(sql.Literal, params.values()))
        arguments = sql.SQL("({})" if params else "{}").format(literals)
        explain = sql.SQL("EXPLAIN (FORMAT JSON) EXECUTE asked {}").format(arguments)
        row = psycopg.ClientCursor(planner).execute(explain).fetchone()
    finally:
        planner.execute("DEALLOCATE asked")
    assert row
    answer = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return list(nodes(answer[0]["Plan"]))


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from nodes(below)


def indexes_of_jobs(planner: Session, name: str) -> set[str]:
    names = (node.get("Index Name", "") for node in plan(planner, name))
    return {each for each in names if each.startswith("pulljobs_job_")}
