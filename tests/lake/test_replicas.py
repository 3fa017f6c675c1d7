"""The lake reads rows from a standby server if the settings name one, once it has those rows."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError
from django.db import connections
from django.test import override_settings

from example_project.postgres.place import PORT
from pulljobs.checks import check_settings
from pulljobs.engine import outcomes
from pulljobs.lake import replicas
from pulljobs.lake.spark import slices
from pulljobs.storage import jobs
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.lake.lakes import Place, assert_same, files, run
from tests.lake.standby import serve_standby
from tests.sessions import wait_until

pytestmark = [pytest.mark.django_db(transaction=True, databases="__all__"), pytest.mark.owner]
ALIAS = "replica"
REFUSED = {"nosuch": "must name another", USING: "must name", ALIAS: "must have the password"}
READS = "SELECT sum(seq_scan + idx_scan) > 0 FROM pg_stat_user_tables WHERE relname LIKE %s"


def settled(count: int) -> None:
    consumer = ConsumerFactory.create()
    published(consumer, count)
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, count)])


@pytest.fixture(autouse=True, scope="module")
def alias() -> Iterator[None]:
    """Add the alias of the replica, before Django looks which databases a test may use."""
    given = connections.settings[USING]
    mirror = {**given["TEST"], "MIRROR": USING}  # so that no test empties it
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections.settings, ALIAS, {**given, "TEST": mirror})
        yield


def change_alias(monkeypatch: pytest.MonkeyPatch, **changed: str) -> None:
    for name, value in {**connections.settings[USING], **changed}.items():
        if name != "TEST":
            monkeypatch.setitem(connections.settings[ALIAS], name, value)
    with suppress(AttributeError):  # no connection of these settings was opened
        del connections[ALIAS]


@pytest.fixture
def standby(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if connections[USING].settings_dict["ENGINE"] != "example_project.postgres":
        pytest.skip("needs the files of the embedded server")
    with serve_standby() as host:
        engine = "django.db.backends.postgresql"
        change_alias(monkeypatch, ENGINE=engine, HOST=str(host), PORT=str(PORT))
        yield ALIAS
        connections[ALIAS].close()


def ask(text: str, *params: str) -> Any:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute(text, params)
        return cursor.fetchone()[0]


@pytest.mark.processes
def test_rows_are_read_from_a_replica_once_it_has_them(
    place: Place, standby: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {**django_settings.PULLJOBS, "LAKE_REPLICA": standby}
    with override_settings(PULLJOBS=given):
        ask("SELECT pg_wal_replay_pause()")
        settled(3)
        with monkeypatch.context() as patch:
            patch.setattr(replicas, "PATIENCE_SECONDS", 0.3)
            with pytest.raises(CommandError, match=r"^The replica 'replica' is [\d,]+ bytes of"):
                run("export")
        assert files(place, "archive") == []
        ask("SELECT pg_wal_replay_resume()")
        assert run("export")["rows"] == {"archive": 3, "messages": 3}
        wait_until(lambda: bool(ask(READS, "pulljobs_archived_job%")))
        assert run("verify")["equal"]
    assert_same(place)


def test_a_replica_that_is_no_standby_is_one_clear_line(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server with other transaction ids, such as a logical replica, is refused in one line."""
    settled(1)
    change_alias(monkeypatch)
    with (
        override_settings(PULLJOBS={**django_settings.PULLJOBS, "LAKE_REPLICA": ALIAS}),
        pytest.raises(CommandError, match="names 'replica', which is no standby server of"),
    ):
        run("export")
    assert run("export")["rows"] == {"archive": 1, "messages": 1}


def test_a_replica_needs_an_alias_and_the_password_of_the_database(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change_alias(monkeypatch, PASSWORD="another")
    for alias, reason in REFUSED.items():
        with override_settings(PULLJOBS={"LAKE_REPLICA": alias}):
            [problem] = [check for check in check_settings(None) if check.id == "pulljobs.E027"]
            assert reason in problem.msg


def test_reads_are_bounded_by_a_setting(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MIN_ROWS", 5)
    for connections_at_once, count in ((1, 1), (3, 3)):
        bound = {**django_settings.PULLJOBS, "LAKE_CONNECTIONS": connections_at_once}
        before = len(files(place, "archive"))
        settled(20)
        with override_settings(PULLJOBS=bound):
            run("export")
        assert len(files(place, "archive")) - before == count
    assert_same(place)
