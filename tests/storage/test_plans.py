"""No hot statement scans a table, with any statistics and on any connection."""

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker

from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from tests.days import drop_days
from tests.sessions import FORGET, Session, session
from tests.storage.planning import ALL, PARAMS, TABLES, indexes_of_jobs, plan

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

JOBS = 60_000
FILL_ARCHIVE = """
INSERT INTO pulljobs_archived_job
    (job_id, message_id, consumer_id, created_at, settled_at, retry_count, deliveries,
    state, lease_token)
SELECT n, n, 1, now(), now(), 0, 1, 'DELIVERED', gen_random_uuid()
FROM generate_series({first}, {last}) AS n
"""
FILL = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority,
    state, lease_token, reason, key, turn_key)
SELECT n, n % 3, n,
    CASE WHEN n % 10 > 0 THEN now() + n * interval '0.1 s' - interval '1 hour' END,
    0, 0, n % 2,
    CASE n % 10 WHEN 0 THEN 'DEAD' WHEN 1 THEN 'INFLIGHT' ELSE 'QUEUED' END,
    CASE n % 10 WHEN 1 THEN lpad(to_hex(n / 100), 32, '0')::uuid END,
    CASE n % 10 WHEN 0 THEN 'killed' END,
    CASE n % 3 WHEN 2 THEN 'key ' || n / 15 END,
    CASE n % 3 WHEN 1 THEN 'key ' || n / 15 END
FROM generate_series({first}, {last}) AS n;
INSERT INTO pulljobs_exclusive_key (consumer_id, key)
SELECT 2, 'key ' || n FROM generate_series({first} / 15, {last} / 15) AS n
ON CONFLICT DO NOTHING;
INSERT INTO pulljobs_flow_key (consumer_id, key, turn_at)
SELECT 1, 'key ' || n, now() FROM generate_series({first} / 15, {last} / 15) AS n
ON CONFLICT DO NOTHING;
INSERT INTO pulljobs_lease (
    lease_token, consumer_id, via, claimed_at, leased_until, hard_end, job_ids)
SELECT lpad(to_hex(n / 100), 32, '0')::uuid, 1, 'worker', now(), now() + n * interval '1 s', now(),
    array_agg(n)
FROM generate_series({first}, {last}) AS n WHERE n % 10 = 1 GROUP BY n;
INSERT INTO pulljobs_settlement_count (period, consumer_id, starts_at, delivered, dead, retries,
    wait_buckets, wait_jobs, run_buckets, run_jobs)
SELECT CASE n % 2 WHEN 0 THEN 'minute' ELSE 'hour' END, n % 3, now() - n * interval '1 minute',
    1, 0, 0, '{{1,2}}', '{{1,2}}', '{{1,2}}', '{{1,2}}'
FROM generate_series({first}, {last}) AS n;
INSERT INTO pulljobs_message
    (id, channel_id, published_at, priority, content_type, headers, payload)
SELECT n, 1, now(), 0, '', '{{}}', '' FROM generate_series({first}, {last}) AS n
"""


def fill(known: Session, texts: tuple[str, ...], first: int, last: int) -> None:
    for text in texts:
        known.execute(text.format(first=first, last=last).encode())


STATISTICS = ("analyzed", "never analyzed", "analyzed when small", "churned")


# Filling takes seconds: with xdist, one process does it, for all the tests that want it so.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param(statistics, marks=pytest.mark.xdist_group(f"plans, {statistics}"))
        for statistics in STATISTICS
    ],
)
def filled(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[str]:
    """Fill the tables with many rows, and return which statistics the planner has of them.

    A module that needs only some of the rows names the INSERT statements in `FILLS`.
    """
    texts = getattr(request.module, "FILLS", (FILL_ARCHIVE, FILL))
    with django_db_blocker.unblock(), session() as known:
        drop_days()  # all is in the default partitions, for an empty one is scanned
        known.autocommit = True
        for table in TABLES:
            known.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = off)")
        known.execute(FORGET)
        try:
            if request.param == "analyzed when small":
                fill(known, texts, 1, 20)
                known.execute(f"ANALYZE {ALL}")
            fill(known, texts, 1_000, 1_000 + JOBS)
            if request.param in {"analyzed", "churned"}:
                known.execute(f"ANALYZE {ALL}")
            if request.param == "churned":
                known.execute("DELETE FROM pulljobs_job WHERE id % 50 > 0")
                known.execute("DELETE FROM pulljobs_lease WHERE id % 50 > 0")
                fill(known, texts, 100_000, 100_000 + JOBS)
            yield request.param
        finally:
            known.execute(
                "TRUNCATE pulljobs_job, pulljobs_lease, pulljobs_archived_job, pulljobs_message,"
                " pulljobs_exclusive_key, pulljobs_flow_key, pulljobs_settlement_count"
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


SMALL = {
    "pulljobs_consumer",
    "pulljobs_channel",
    "pulljobs_count_progress",
    "pulljobs_flow_bucket",
    "pulljobs_limit_group",
}


@pytest.mark.parametrize("name", PARAMS)
def test_no_table_is_scanned(planner: Session, name: str) -> None:
    scans = [
        (node["Node Type"], node["Relation Name"])
        for node in plan(planner, name)
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL
    ]
    if name in {"count_jobs", "allowance"} or not is_dedicated(planner):
        # There are as many leases as claims in flight: there it is a matter of taste.
        scans = [scan for scan in scans if scan[1] != "pulljobs_lease"]
    assert scans == []


def is_dedicated(planner: Session) -> bool:
    return planner.execute("SHOW enable_seqscan").fetchone() == ("off",)


def test_a_claim_enters_the_index_at_the_low_water_mark(planner: Session) -> None:
    """A claim scans the claim index from the low-water mark of each priority on."""
    walks = [
        node["Index Cond"]
        for node in plan(planner, "claim")
        if node.get("Index Name") == "pulljobs_job_claim" and "Index Cond" in node
    ]
    at_the_mark = [cond for cond in walks if "ROW(" in cond and "mark_at" in cond]
    assert len(at_the_mark) >= 2, walks
    assert all("priority =" in cond for cond in at_the_mark)
    assert not [
        node
        for node in plan(planner, "claim")
        if node.get("Index Name") == "pulljobs_job_claim" and "Index Cond" not in node
    ]


def test_points_are_written_by_the_primary_key(planner: Session) -> None:
    """Statements that change jobs by their ids use no index but the primary key."""
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
    """Statements that look for jobs of a key use the index of keys, so they read no other jobs."""
    for name in ("take", "claim_keyed", "free_keys"):
        used = indexes_of_jobs(planner, name)
        assert used == {"pulljobs_job_pkey", "pulljobs_job_key"}, name


def test_earlier_deaths_are_found_by_their_job(planner: Session) -> None:
    """Earlier deaths of a job are looked up by its id, not among the settlements of all jobs."""
    conditions = [
        node.get("Index Cond") or node["Recheck Cond"]
        for node in plan(planner, "count_settlements")
        if node.get("Alias", "").startswith("death")
    ]
    assert conditions
    assert all(cond.startswith("(job_id =") for cond in conditions), conditions


@pytest.mark.parametrize("name", ["claim", "finish", "deliver"])
def test_ids_are_found_in_a_hash_however_many_are_expected(planner: Session, name: str) -> None:
    planner.execute("SET work_mem = '64kB'")
    try:
        nodes = plan(planner, name)
    finally:
        planner.execute("RESET work_mem")
    # Of a claim's lease it is looked whether members are left, not for one.
    others = [node for node in nodes if node.get("Relation Name") != "pulljobs_lease"]
    sought = [condition for node in others if "SubPlan" in (condition := node.get("Filter", ""))]
    assert sought
    assert all("hashed SubPlan" in condition for condition in sought)
