"""Waiting jobs are walked through once, however many of them ended before."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection

from pulljobs import operating
from pulljobs.models import Consumer, Job
from tests.factories import USING, ConsumerFactory
from tests.sessions import FORGET, query

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

JOBS = 4_000
FILL = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state, key)
SELECT n, %s, n, CASE WHEN n %% 4 > 0 THEN now() + n * interval '1 ms' END, 0, 0, n %% 3, 'QUEUED',
    CASE WHEN n %% 4 = 0 THEN 'a key' END
FROM generate_series(1, %s) AS n
"""


@pytest.fixture(params=["analyzed", "never analyzed"])
def consumer(request: pytest.FixtureRequest) -> Consumer:
    """Return a consumer with many jobs: of three priorities, some due later, some blocked."""
    made: Consumer = ConsumerFactory.create(exclusive_keys=True)
    query(FORGET.replace("%", "%%"))
    query(FILL, [made.pk, JOBS])
    if request.param == "analyzed":
        query("ANALYZE pulljobs_job")
    return made


def test_purging_reads_each_job_a_few_times(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operating, "BATCH", 100)
    read: list[float] = []

    def explain(
        execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any
    ) -> Any:
        if sql.startswith("SELECT") and "pulljobs_job" in sql:
            execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", params, many, context)
            [(plan,)] = context["cursor"].fetchall()
            read.extend(map(rows, nodes(plan[0]["Plan"])))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(explain):
        assert operating.purge(consumer) == JOBS
    assert set(Job.objects.using(USING).values_list("state", "reason")) == {("DEAD", "purged")}
    assert sum(read) < 5 * JOBS


def rows(node: dict[str, Any]) -> float:
    """Return how many rows of the job table a node of a plan has read."""
    if node.get("Relation Name") != "pulljobs_job":
        return 0
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
    return float(each * node["Actual Loops"])


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node.get("Plans", []):
        yield from nodes(below)
