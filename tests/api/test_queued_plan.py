"""Listing reads a page, however much waits behind it, before it, or later."""

import re
from collections.abc import Iterator
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
    """Tens of thousands due at two priorities, and as many due later at the highest of all."""
    _execute(FORGET)
    made = subscription("orders", "census").consumer
    for number, (priority, due) in enumerate([(9, "1 day"), (5, "-1 day"), (0, "-1 day")]):
        first = number * BACKLOG
        _execute(FILL, [made.pk, due, priority, first + 1, first + BACKLOG])
    return made


@pytest.fixture(params=["force_custom_plan", "force_generic_plan"])
def prepared(request: pytest.FixtureRequest, consumer: Consumer) -> Iterator[None]:
    text = statement("queued").replace("%%", "%")
    for position, name in enumerate(PARAMETERS, 1):
        text = text.replace(f"%({name})s", f"${position}")
    assert not re.search(r"%\(", text)
    _execute(f"SET LOCAL plan_cache_mode = {request.param}")
    _execute(f"PREPARE queued ({', '.join(PARAMETERS.values())}) AS {text}")
    yield
    _execute("DEALLOCATE queued")


@pytest.mark.owner
@pytest.mark.parametrize("analyzed", [True, False])
@pytest.mark.parametrize("entry", [FROM_THE_HEAD, IN_THE_MIDDLE])
@pytest.mark.usefixtures("prepared")
def test_a_page_reads_a_page(consumer: Consumer, entry: str, analyzed: bool) -> None:
    """No sequential scan, no sort, a few blocks a job: at the head and in the middle."""
    if analyzed:
        _execute("ANALYZE pulljobs_job")
    _execute("SET LOCAL enable_seqscan = on")
    plan = _explain(f"EXECUTE queued ({consumer.pk}, 101, {entry})")
    jobs = [node for node in _nodes(plan["Plan"]) if node.get("Relation Name") == "pulljobs_job"]
    assert max(node["Actual Rows"] * node["Actual Loops"] for node in jobs) == 101
    assert {node["Node Type"] for node in jobs} <= {"Index Scan", "Index Only Scan"}
    assert {node["Index Name"] for node in jobs} == {"pulljobs_job_claim"}
    assert plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"] < 200


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
