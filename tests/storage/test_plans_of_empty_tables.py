"""Plans made for empty tables, when all indexes cost alike, read no whole index of a backlog."""

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker

from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from tests.days import drop_days
from tests.sessions import FORGET, Session, session
from tests.storage.planning import ALL, PARAMS, TABLES, indexes_of_jobs, plan

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

OF_WORKERS = (
    "claim",
    "claim_level",
    "claim_keyed",
    "find_keyed",
    "free_keys",
    "messages",
    "renew",
    "finish",
    "deliver",
    "settled",
    "expired",
    "end_leases",
)


@pytest.fixture(scope="module")
def planner(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Session]:
    """Open a worker's connection after a VACUUM of empty tables."""
    with django_db_blocker.unblock(), session() as asking:
        drop_days()
        asking.autocommit = True
        asking.execute(FORGET)
        asking.execute(f"VACUUM ANALYZE {ALL}")
        asking.execute(PLAN_FOR_QUEUES)
        yield asking
        asking.execute(FORGET)


@pytest.mark.parametrize("name", OF_WORKERS)
def test_no_index_is_read_as_a_whole(planner: Session, name: str) -> None:
    assert name in PARAMS
    assert [
        (node["Relation Name"], node.get("Index Name"))
        for node in plan(planner, name)
        if node.get("Relation Name") in TABLES
        and node["Node Type"].endswith("Scan")
        and node["Node Type"] != "Tid Scan"
        and "Index Cond" not in node
    ] == []


@pytest.mark.parametrize("name", OF_WORKERS)
def test_ids_are_found_by_the_primary_key(planner: Session, name: str) -> None:
    used = {
        node["Index Name"]
        for node in plan(planner, name)
        if node.get("Relation Name") in TABLES and node.get("Index Cond", "").startswith("(id = ")
    }
    assert {index for index in used if not index.endswith("_pkey")} == set()
    if name in {"renew", "finish", "deliver", "expired"}:
        assert indexes_of_jobs(planner, name) == {"pulljobs_job_pkey"}
