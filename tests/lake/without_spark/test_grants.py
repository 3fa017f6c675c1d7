"""The profile `lake` may write the tables of the lake, which a worker may only read."""

import pytest

from pulljobs.storage.grants import Profile
from tests.databases.test_grants import being, doing, grant, may, rights, role

__all__ = ["role"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]


def test_the_profile_lake_writes_the_tables_of_the_lake_and_those_of_the_core(role: str) -> None:
    grant(role, "lake")
    assert rights(role) >= {("pulljobs_lake_run", "DELETE"), ("pulljobs_job", "UPDATE")}
    grant(role, Profile.READ)
    assert {privilege for _, privilege in rights(role)} == {"SELECT"}


def test_a_worker_reads_the_tables_of_the_lake_and_does_not_write_them(role: str) -> None:
    grant(role, Profile.APP)
    with being(role):
        assert may(doing("SELECT FROM pulljobs_lake_run"))
        assert not may(doing("UPDATE pulljobs_lake_run SET state = 'done'"))
