"""Statements of batches and workflows scan no large table, some only once it is analyzed."""

from importlib.resources import files
from typing import Any, Final

import pytest
from django.db import connection, transaction

from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from tests.days import drop_days
from tests.factories import USING
from tests.sessions import FORGET, query
from tests.storage.planning import IDS, PARAMS, TOKENS, plan

pytestmark = [pytest.mark.django_db, pytest.mark.owner]
ROWS: Final = 20_000
MANY: Final = 60_000
"""Number of rows of each table from which a statement reads only the first ones of an index.

Without statistics the planner would read and sort a smaller table as a whole.
"""
FILL: Final = f"""
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state,
    lease_token, reason, batch_id)
SELECT n, n % 3, n, CASE WHEN n % 10 > 0 THEN now() + n * interval '1 s' END, 0, 1, 0,
    CASE n % 10 WHEN 0 THEN 'DEAD' WHEN 1 THEN 'INFLIGHT' ELSE 'QUEUED' END,
    CASE n % 10 WHEN 1 THEN lpad(to_hex(n / 100), 32, '0')::uuid END,
    CASE n % 10 WHEN 0 THEN 'killed' END, CASE WHEN n % 2 = 0 THEN n / 10 END
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_lease
    (lease_token, consumer_id, via, claimed_at, leased_until, hard_end, job_ids)
SELECT lpad(to_hex(n / 100), 32, '0')::uuid, 1, 'worker', now(), now(), now(), ARRAY[n]
FROM generate_series(1, {ROWS}, 10) AS n;
INSERT INTO pulljobs_run
    (id, workflow, version, waiting_for, waiting_batch, waiting_consumer, rounds)
SELECT n, 'fulfil', n % 2, CASE WHEN n % 3 = 0 THEN 'approval' END,
    CASE WHEN n % 3 = 1 THEN n END, CASE WHEN n % 3 = 2 THEN n % 5 END, 0
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_step (run_id, name, number, position, kind, function, started_at)
SELECT n, 'charge', 1, 1, 'step', '', now() FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_signal (id, run_id, name, is_new, consumed_at, consumed_by)
SELECT n, n, 'approval', n % 2 = 0, CASE WHEN n % 3 = 0 THEN now() END,
    CASE WHEN n % 3 = 0 THEN 1 END
FROM generate_series(1, {MANY}) AS n;
INSERT INTO pulljobs_batch
    (id, name, callbacks, members, delivered, dead, redriven, redriven_before, round, parent_id,
    run_id, closed_at, completed_at)
SELECT n, 'nightly', '[]', 2, 1, 1, 0, 0, 1, CASE WHEN n % 5 = 0 THEN n - 1 END,
    CASE WHEN n % 7 = 0 THEN n END, now(), CASE WHEN n % 2 = 0 THEN now() END
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_batch_part (batch_id, id, job_ids)
SELECT n, n, ARRAY[n] FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_batch_sum (batch_id, id, delivered)
SELECT n, n, 1 FROM generate_series(1, {ROWS}) AS n
"""
TABLES: Final = (
    "pulljobs_job",
    "pulljobs_lease",
    "pulljobs_run",
    "pulljobs_step",
    "pulljobs_signal",
    "pulljobs_batch",
    "pulljobs_batch_part",
    "pulljobs_batch_sum",
)
SMALL: Final = {"pulljobs_lease", "pulljobs_batch_sum"}
"""Tables with a row for each claim in flight, and for each settlement since the last merge."""
LATER: Final = {"forget_runs", "forget_signals", "known_versions", "list_runs", "waiting_runs"}
"""Statements of upkeep, metrics and pages, which read large tables after their first ANALYZE."""
RUN: Final = {"run_id": 1_001}
BATCH: Final = {"batch_id": 1_001}
STEP: Final = {"name": "charge", "number": 1, "position": 1}
STATEMENTS: Final[dict[str, dict[str, Any]]] = {
    "add_batch_part": {**BATCH, "job_ids": IDS},
    "append_batch_sum": {**BATCH, "members": 0, "delivered": 0, "dead": 0, "redriven": 0},
    "batches_to_look_at": {"after": 5_000, "wanted": 100},
    "close_batch": {**BATCH, "is_cancelled": True},
    "count_batches": {"batch_ids": IDS},
    "count_in_flight": {**BATCH, "cap": 1_000},
    "decide_batch": BATCH,
    "forget_batch_sums": {"batch_ids": IDS},
    "forget_ended_batches": {"age": "1 day", "wanted": 100},
    "lock_batch": BATCH,
    "lock_batch_to_add": BATCH,
    "merge_batch_sums": {**BATCH, "is_decision": False},
    "note_refusal": {**BATCH, "error": "no such channel"},
    "verify_batch": BATCH,
    "begin_run": {
        **RUN,
        "message_id": 1,
        "lease_token": TOKENS[0],
        "workflow": "fulfil",
        "version": 1,
        "oldest_version": 1,
    },
    "continue_run": {**RUN, "version": 1, "input": "[1]"},
    "count_live_runs": {"consumer_ids": [1, 2], "cap": 1_000},
    "end_gather": RUN,
    "flush_commits": {},
    "forget_runs": {"age": "1 day", "after": 5_000, "scanned": 100},
    "forget_signals": {"age": "1 day", "after": 5_000, "scanned": 100},
    "forget_steps": {**RUN, "position": 1, "discards_signals": True},
    "leave_run": RUN,
    "known_versions": {"most": 1_000},
    "list_runs": {
        "below": 10_000,
        "scanned": 1_000,
        "wanted": 50,
        "workflow": "fulfil",
        "version": 1,
        "state": "QUEUED",
    },
    "lock_free_runs": {"run_ids": IDS},
    "lock_runs": {"run_ids": IDS},
    "new_signals": {"after": 0, "wanted": 100, "age": "5 s"},
    "restore_retries": {**RUN, "lease_token": TOKENS[0]},
    "renew_run": {
        **RUN,
        "message_id": 1,
        "lease_token": TOKENS[0],
        "workflow": "fulfil",
        "version": 1,
    },
    "send_signal": {
        **RUN,
        "name": "approval",
        "payload": "1",
        "dedupe_id": "a",
        "is_alone": True,
        "database_channel": "pulljobs",
    },
    "suspend_run": {
        **RUN,
        **STEP,
        "kind": "wait",
        "function": "",
        "is_bounded": True,
        "children": None,
        "waiting_for": "approval",
        "waiting_batch": None,
    },
    "take_up_runs": {
        "channels": ["orders"],
        "consumers": ["fulfilment"],
        "oldest": [1],
        "newest": [2],
        "wanted": 100,
    },
    "take_signal": {**RUN, **STEP, "lease_token": TOKENS[0], "is_over": False},
    "verify_runs": {"after": 5_000, "wanted": 100, "age": "1 min"},
    "waiting_runs": {"most": 1_000},
    "wake_runs": {"run_ids": IDS, "is_alone": False, "database_channel": "pulljobs"},
    "write_step": {
        **RUN,
        **STEP,
        "lease_token": TOKENS[0],
        "kind": "step",
        "function": "",
        "seconds": 1.0,
        "is_ended": True,
        "result": "1",
        "failure": None,
        "batch_id": None,
        "children": None,
    },
    "deliver_member": PARAMS["deliver"],
    "deliver_members": PARAMS["deliver"],
    "finish_members": PARAMS["finish"],
    "revive_member": {"job_id": 1_001},
}
"""Parameters of each statement."""
PLANNERS: Final = {
    "dedicated": PLAN_FOR_QUEUES,
    "generic plans": "SET LOCAL plan_cache_mode = force_generic_plan",
    "custom plans": "SET LOCAL plan_cache_mode = force_custom_plan",
}


def test_every_statement_is_known() -> None:
    folder = files("pulljobs.workflows") / "sql"
    named = {
        file.name.removesuffix(".sql")
        for part in ("batches", "runs")
        for file in (folder / part).iterdir()
    }
    assert named <= STATEMENTS.keys()


def test_no_large_table_is_scanned() -> None:
    """No statement scans a large table in any session setting. Those of `LATER` need statistics."""
    drop_days()
    query(FORGET.replace("%", "%%"))
    query(f"TRUNCATE {', '.join(TABLES)}")  # or earlier tests leave the numbers of their rows
    query(FILL.replace("%", "%%"))
    never_analyzed = {scan for scan in scans() if scan[1] not in LATER}
    query(f"ANALYZE {', '.join(TABLES)}")
    assert (never_analyzed, scans()) == (set(), set())


def scans() -> set[tuple[str, str, str]]:
    """Return the planner, the statement and the table of each scan of a large table."""
    scanned = set()
    for planner, setting in PLANNERS.items():
        with transaction.atomic(USING):
            query(setting)
            session: Any = connection.connection
            scanned |= {
                (planner, name, node["Relation Name"])
                for name in STATEMENTS
                for node in plan(session, name, STATEMENTS)
                if node["Node Type"] == "Seq Scan" and node["Relation Name"] in TABLES
            }
            transaction.set_rollback(True, using=USING)  # the setting
    return {scan for scan in scanned if scan[2] not in SMALL}
