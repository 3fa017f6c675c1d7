"""A listing reads only its page, however many jobs wait before or behind it, or are due later."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import connection

from pulljobs.engine.sql import statement
from pulljobs.models import Consumer
from tests.api.caller import subscription
from tests.sessions import FORGET

PARAMETERS = {
    "consumer_id": "bigint",
    "wanted": "int",
    "priorities": "int[]",
    "mark_ats": "timestamptz[]",
    "mark_ids": "bigint[]",
    "gap_tops": "int[]",
    "gap_bottoms": "int[]",
}
FROM_THE_HEAD = "'{}', '{}', '{}', '{32768}', '{-32769}'"
IN_THE_MIDDLE = (
    "'{5}', ARRAY[now() - interval '23 hours 59 minutes 40 seconds'], "
    f"'{{{2**62}}}', '{{5}}', '{{-32769}}'"
)
BACKLOG = 40_000
FILL = """
    INSERT INTO pulljobs_job (
        consumer_id, message_id, available_at, priority, state, retry_count, deliveries
    )
    SELECT %s, number, now() + %s::interval + number * interval '1 millisecond', %s, 'QUEUED', 0, 0
    FROM generate_series(%s, %s) AS number
"""


@pytest.fixture
def consumer(db: None) -> Consumer:
    """Consumer with 40,000 jobs due at each of two priorities, 40,000 delayed at a higher one."""
    _execute(FORGET)
    made = subscription("orders", "census").consumer
    for number, (priority, due) in enumerate([(9, "1 day"), (5, "-1 day"), (0, "-1 day")]):
        first = number * BACKLOG
        _execute(FILL, [made.pk, due, priority, first + 1, first + BACKLOG])
    return made


PLAN_CACHE_MODES = ("force_custom_plan", "force_generic_plan")
ENTRIES = {"from the head": FROM_THE_HEAD, "in the middle": IN_THE_MIDDLE}


@pytest.mark.owner
def test_a_page_reads_a_page(consumer: Consumer) -> None:
    """The plan of a page has no sequential scan or sort and reads a few blocks for each job.

    This holds with and without statistics of the table.
    """
    for is_analyzed in (False, True):
        if is_analyzed:
            _execute("ANALYZE pulljobs_job")
        _execute("SET LOCAL enable_seqscan = on")
        for mode in PLAN_CACHE_MODES:
            with prepared(mode):
                for entry, marks in ENTRIES.items():
                    case = (is_analyzed, mode, entry)
                    _check(_explain(f"EXECUTE queued ({consumer.pk}, 101, {marks})"), case)


@contextmanager
def prepared(plan_cache_mode: str) -> Iterator[None]:
    text = statement("queued").replace("%%", "%")
    for position, name in enumerate(PARAMETERS, 1):
        text = text.replace(f"%({name})s", f"${position}")
    assert not re.search(r"%\(", text)
    _execute(f"SET LOCAL plan_cache_mode = {plan_cache_mode}")
    _execute(f"PREPARE queued ({', '.join(PARAMETERS.values())}) AS {text}")
    yield
    _execute("DEALLOCATE queued")


def _check(plan: dict[str, Any], case: tuple[bool, str, str]) -> None:
    jobs = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") == "pulljobs_job"]
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in jobs) == 101, case
    assert {node["Node Type"] for node in jobs} <= {"Index Scan", "Index Only Scan"}, case
    assert {node["Index Name"] for node in jobs} == {"pulljobs_job_claim"}, case
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 200, case


def _explain(text: str) -> dict[str, Any]:
    plan: dict[str, Any] = _execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}")[0][0][0]
    return plan


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _execute(text: str, params: list[Any] | None = None) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        return cursor.fetchall() if cursor.description else []
