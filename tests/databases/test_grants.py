"""The rights that `pulljobs grants` prints are those that a role needs and no more."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from uuid import uuid4

import pytest
from django.apps import apps
from django.core.management.base import CommandError
from django.db import ProgrammingError, connection, connections, transaction

from pulljobs import operating, pulling
from pulljobs.errors import DuplicateMessage, KeyFull
from pulljobs.hooks import app_labels
from pulljobs.models import ArchivedJob, Job, Message
from pulljobs.publishing import publish, publish_many
from pulljobs.pulling import Puller
from pulljobs.storage import grants, listen, nodes, partition_making, partitions
from pulljobs.storage.grants import Profile
from tests.days import no_days
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import query

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
NASTY = 'shop "x"; DROP TABLE pulljobs_job; --'
"""Role name that drops a table unless it is quoted."""


@pytest.fixture
def role() -> Iterator[str]:
    name = f"{NASTY} {uuid4().hex[:8]}"
    quoted = connection.ops.quote_name(name).replace(name, name.replace('"', '""'))
    query(f"CREATE ROLE {quoted}")
    yield name
    query(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")


def grant(role: str, profile: str = Profile.APP) -> None:
    for statement in grants.statements(USING, role, profile):
        query(statement)


@contextmanager
def being(role: str) -> Iterator[None]:
    query("SELECT set_config('role', %s, false)", [role])
    try:
        yield
    finally:
        connections[USING].rollback()
        query("RESET ROLE")


def may(work: Callable[[], object]) -> bool:
    try:
        with transaction.atomic(USING):
            work()
    except ProgrammingError as error:
        if "permission denied" not in str(error):
            raise
        return False
    return True


def doing(statement: str) -> Callable[[], object]:
    return lambda: query(statement)


def test_a_worker_and_a_publisher_have_all_rights_that_they_need(role: str) -> None:
    """The default profile lets a role publish, claim, kill, redrive, reap and maintain.

    With PULLJOBS_TEST_SECOND=1, all tests run with these rights.
    """
    consumer = ConsumerFactory.create()
    grant(role)
    with no_days(), being(role):
        publish_many(consumer.channel.name, [b"x"] * 3)
        claim = Puller(USING, consumer).claim(3)
        assert claim.taken
        assert len(claim.jobs) == 3
        assert operating.kill([job.id for job, _message in claim.jobs], by="test").done
        assert operating.redrive_all(consumer) == 3
        assert pulling.reap() is None
        assert operating.maintain().not_owned


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE pulljobs_archived_job SET error = ''",
        "DELETE FROM pulljobs_archived_job",
        "UPDATE pulljobs_message SET payload = ''",
        "DELETE FROM pulljobs_message",
        "DELETE FROM pulljobs_audit_entry",
        "UPDATE pulljobs_audited_batch SET done = '{}'",
        "TRUNCATE pulljobs_job",
        "LOCK TABLE pulljobs_archived_job IN ACCESS EXCLUSIVE MODE",
        "SELECT setval('pulljobs_id', 1)",
        "UPDATE django_migrations SET name = ''",
        "CREATE TABLE of_its_own (id int)",
    ],
)
def test_history_and_tables_are_out_of_reach_of_a_worker(role: str, statement: str) -> None:
    grant(role)
    with being(role):
        assert not may(doing(statement))


def test_a_publisher_publishes_and_can_neither_read_nor_take(role: str) -> None:
    consumer = ConsumerFactory.create(max_queued_per_key=1)
    name = consumer.channel.name
    grant(role, Profile.PUBLISH)
    with being(role):
        publish(name, b"x", key="a", message_id="1", delay=timedelta(seconds=1))
        publish(name, b"x")
        publish_many(name, [b"x"])
        publish_many(name, [b"x"] * 3)
        with pytest.raises(KeyFull):
            publish(name, b"x", key="a")
        with pytest.raises(DuplicateMessage):
            publish(name, b"x", message_id="1")
        for statement in (
            "SELECT payload FROM pulljobs_message",
            "SELECT token_digest FROM pulljobs_consumer",
            "SELECT error FROM pulljobs_job",
            "DELETE FROM pulljobs_job",
            "UPDATE pulljobs_job SET state = 'DEAD'",
            "SELECT 1 FROM pulljobs_archived_job",
            "INSERT INTO pulljobs_lease DEFAULT VALUES",
        ):
            assert not may(doing(statement)), statement
    assert Message.objects.count() == 6


def test_a_publisher_wakes_waiters(role: str) -> None:
    consumer = ConsumerFactory.create()
    name = consumer.channel.name
    listen.wait(USING, [consumer.pk], uuid4(), timedelta(minutes=1))
    grant(role, Profile.PUBLISH)
    listener = listen.Listener(USING)
    try:
        with being(role):
            for _time in range(2):  # the second publish carries the wake-up
                publish(name, b"x")
                assert listener.receive(timedelta(seconds=10)) == {consumer.pk}
            publish_many(name, [b"x"])
            assert listener.receive(timedelta(seconds=10)) == {consumer.pk}
    finally:
        listener.close()


def test_a_reader_sees_all_and_changes_nothing(role: str) -> None:
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    grant(role, Profile.READ)
    with being(role):
        assert {finding["code"] for finding in answer("doctor")[0]["findings"]} >= {"no_worker"}
        assert answer("explain", str(job_id))[0]["state"] == "QUEUED"
        assert answer("verify")[1] == 0
        for table in grants.privileges(Profile.READ):
            assert may(doing(f"SELECT * FROM {table} LIMIT 1")), table
            assert not may(doing(f"DELETE FROM {table}")), table
        assert not may(lambda: publish(consumer.channel.name, b"x"))


def test_a_partition_that_is_made_later_is_granted_with_its_table(role: str) -> None:
    consumer = ConsumerFactory.create()
    with no_days():
        grant(role)
        list(partition_making.make_ahead(USING, 0))
        today = nodes.clock(USING).date()
        assert [partition.day for partition in partitions.existing(USING, "pulljobs_message")] == [
            today
        ]
        with being(role):
            published(consumer)
            operating.kill(list(Job.objects.values_list("id", flat=True)), by="test")
            assert ArchivedJob.objects.get().message.payload == b"payload"
            assert Message.objects.count() == 1


def test_repeated_grants_change_nothing_and_another_profile_replaces_all_rights(
    role: str,
) -> None:
    grant(role, Profile.APP)
    before = rights(role)
    assert before >= {("pulljobs_job", "DELETE"), ("pulljobs_job", "UPDATE")}
    grant(role, Profile.APP)
    assert rights(role) == before
    grant(role, Profile.READ)
    assert {privilege for _, privilege in rights(role)} == {"SELECT"}


def test_grants_on_partitions_are_revoked_like_others(role: str) -> None:
    """`pulljobs grants` revokes rights on partitions, which a grant on all tables has given."""
    consumer = ConsumerFactory.create()
    with no_days():
        list(partition_making.make_ahead(USING, 0))
        published(consumer)
        [partition] = partitions.existing(USING, "pulljobs_message")
        quoted = role.replace('"', '""')
        query(f'GRANT ALL ON ALL TABLES IN SCHEMA public TO "{quoted}"')
        grant(role, Profile.PUBLISH)
        with being(role):
            assert not may(doing(f"SELECT payload FROM {partition.name}"))
        printed = grants.statements(USING, role, Profile.PUBLISH)
        assert not any(partition.name in statement for statement in printed)


def rights(role: str) -> set[tuple[str, str]]:
    statement = (
        "SELECT table_name, privilege_type FROM information_schema.table_privileges"
        " WHERE grantee = %s"
    )
    return set(query(statement, [role]))


def test_every_table_belongs_to_a_profile() -> None:
    """A new table needs a profile of `pulljobs grants` with rights on it."""
    models = [
        model
        for label in app_labels
        for model in apps.get_app_config(label).get_models(include_auto_created=True)
    ]
    tables = {model._meta.db_table for model in models if model._meta.managed}
    granted = {table for profile in grants.profiles() for table in grants.privileges(profile)}
    assert tables - granted == set()


def test_doctor_names_missing_rights_and_why_no_partition_is_made(role: str) -> None:
    grant(role)
    quoted = role.replace('"', '""')
    query(f'REVOKE INSERT ON pulljobs_attempt FROM "{quoted}"')
    query(f'REVOKE USAGE ON SEQUENCE pulljobs_id FROM "{quoted}"')
    with being(role):
        findings = {finding["code"]: finding for finding in answer("doctor")[0]["findings"]}
        assert "INSERT on pulljobs_attempt, USAGE on pulljobs_id" in findings["no_grant"]["text"]
        assert "as the owner every day" in findings["not_owner"]["text"]
        assert not findings["not_owner"]["is_error"]
        content, code = answer("maintain")
        assert (content["not_owned"], code) == (["pulljobs_archived_job", "pulljobs_message"], 1)
        assert "does not own" in text("partitions")


def test_doctor_goes_on_after_a_check_whose_table_the_role_may_not_read(role: str) -> None:
    """`doctor` reports tables that its role may not read, as after an upgrade, and goes on."""
    published(ConsumerFactory.create())
    grant(role)
    quoted = role.replace('"', '""')
    query(f'REVOKE ALL ON pulljobs_limit_group, pulljobs_audit_entry FROM "{quoted}"')
    with being(role):
        findings, code = answer("doctor")
        texts = [f["text"] for f in findings["findings"] if f["code"] == "no_grant"]
        assert code == 1
        assert len(texts) == len(set(texts))
        assert any("SELECT and UPDATE on pulljobs_limit_group" in text for text in texts)
        assert any("left out" in text and "table pulljobs_limit_group" in text for text in texts)
        assert "no_worker" in {finding["code"] for finding in findings["findings"]}
        with pytest.raises(CommandError, match="privilege .*: use another role, or run what"):
            answer("operate")


def test_a_session_that_may_only_read_is_reported_unless_its_role_has_no_more(role: str) -> None:
    """Doctor reports a read-only session unless its role may only read. `reap` is refused."""
    grant(role, Profile.READ)
    query("SET default_transaction_read_only = on")
    try:
        [finding] = [f for f in answer("doctor")[0]["findings"] if f["code"] == "read_only"]
        assert finding["is_error"]
        with pytest.raises(CommandError, match="may only read .*: connect to the primary, and end"):
            answer("reap")
        with being(role):
            codes = {finding["code"] for finding in answer("doctor")[0]["findings"]}
            assert "read_only" not in codes
    finally:
        query("RESET default_transaction_read_only")


def test_a_role_that_does_not_see_the_tables_learns_where_they_are() -> None:
    query("SELECT set_config('search_path', 'pg_catalog', false)")
    try:
        for command in (["grants", "shop"], ["list"]):
            with pytest.raises(CommandError, match="does not see .* schema 'public'.*set its sea"):
                answer(*command)
    finally:
        query("RESET search_path")


def test_grants_are_printed_for_psql_with_the_name_of_the_profile() -> None:
    printed = text("grants", NASTY, "--for", "publish")
    assert printed.startswith("-- publish: publish(), and nothing else")
    assert 'TO "shop ""x""; DROP TABLE pulljobs_job; --";' in printed
    assert "BEGIN;" in printed
    assert printed.rstrip().endswith("COMMIT;")
    assert answer("grants", "shop")[0]["for"] == "app"
