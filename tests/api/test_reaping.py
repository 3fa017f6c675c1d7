"""Server processes end the leases that they hand out over HTTP, without a worker."""

import logging
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.core.checks import run_checks
from django.db import DatabaseError
from django.db.models.functions import Now
from django.test import override_settings

from example_project.state import BASE_DIR
from pulljobs import ids
from pulljobs.api import reaping
from pulljobs.engine import deadlines
from pulljobs.models import Job, Lease, ScheduledMessage
from pulljobs.pulling import Puller
from tests.api.caller import Caller, Subscription, publish, subscription, taken_by_post
from tests.api.test_broker_clients import SERVERS, serving
from tests.factories import USING
from tests.sessions import Thread, blocked_by, pass_time, query, session, wait_until
from tests.silent import behind, silent_proxy

pytestmark = pytest.mark.django_db(transaction=True)
SHORT = timedelta(seconds=1)
OFTEN = {"REAP_INTERVAL": timedelta(milliseconds=100)}
OFF = {"REAP_WHILE_SERVING": False}


@pytest.fixture
def short(transactional_db: None) -> Subscription:
    """Consumer whose leases end after a second, however a job is claimed."""
    return subscription(
        "orders",
        "census",
        lease_duration=SHORT,
        protocol_lease_duration=SHORT,
        retry_strategy="constant:0",
    )


def is_back(job_id: int) -> bool:
    return Job.objects.filter(id=job_id, state="QUEUED", retry_count=1).exists()


@pytest.mark.processes
@pytest.mark.parametrize("kind", list(SERVERS))
@pytest.mark.parametrize("way", ["pull", "job POST"])
def test_a_server_alone_ends_the_leases_of_its_clients(
    short: Subscription, kind: str, way: str, tmp_path: Path
) -> None:
    """A client claims a job and dies. The job is queued again although no other request follows."""
    job_id, caller = publish(), Caller(short)
    path, body = {
        "pull": ("/pull", {"Batch": 1}),
        "job POST": (f"/job/{ids.encode(job_id)}", {"NextState": "INFLIGHT"}),
    }[way]
    with serving(kind, tmp_path / "server.log") as base:
        url = f"{base}{caller.root}{path}"
        assert httpx.post(url, json=body, headers=caller.tokens, timeout=60).is_success
        assert Lease.objects.exists()
        wait_until(lambda: is_back(job_id))


def reaper_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == reaping.NAME]


def sessions() -> int:
    [(count,)] = query("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    return int(count)


def test_the_reaper_keeps_no_connection_between_passes_unless_django_does(
    short: Subscription,
) -> None:
    job_id, caller, before = publish(), Caller(short), sessions()
    with override_settings(PULLJOBS=OFTEN):
        assert caller.move(job_id, "INFLIGHT").status_code == 202
        [thread] = reaper_threads()
        pass_time()
        wait_until(lambda: is_back(job_id))
        wait_until(lambda: sessions() == before)
        reaping.close()
    assert not thread.is_alive()


def test_scheduled_messages_are_published_where_no_worker_runs(short: Subscription) -> None:
    job_id = publish()
    ScheduledMessage.objects.create(
        channel=short.channel, client_message_id="m", payload=b"x", headers={}, dispatch_at=Now()
    )
    with override_settings(PULLJOBS=OFTEN):
        assert Caller(short).move(job_id, "INFLIGHT").status_code == 202
        wait_until(lambda: Job.objects.count() == 2)


def test_a_client_that_only_lists_gets_the_jobs_of_one_that_crashed(short: Subscription) -> None:
    """A listing, too, starts the reaper, which queues the job of a crashed client again."""
    job_id, caller = publish(), Caller(short)
    taken_by_post(short, job_id)
    with override_settings(PULLJOBS=OFTEN):
        assert caller.queued().content == b'{"Result":[]}'
        pass_time()
        wait_until(lambda: is_back(job_id))


def test_a_reaper_whose_connection_falls_silent_goes_on(
    short: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaping, "LONGEST_PASS_SECONDS", 0.3)
    monkeypatch.setattr(deadlines, "GRACE_SECONDS", 0.3)
    job_id = publish()

    def tick(reaper: reaping.ServingReaper) -> float:
        with behind(proxy, connect_timeout=2):
            return reaper.tick()

    with override_settings(PULLJOBS=OFTEN), silent_proxy() as proxy:
        reaper = reaping.ServingReaper()
        assert tick(reaper) > 0
        claim = Puller(USING, short.consumer).claim(1)
        assert claim.taken
        pass_time()
        with session() as other:
            # The pass waits for this lock when the connection falls silent.
            other.execute("LOCK TABLE pulljobs_lease")
            passing = Thread(lambda: tick(reaper))
            wait_until(lambda: blocked_by(other))
            proxy.silence()
        with pytest.raises(DatabaseError):
            passing.result()
        proxy.speak()
        # The server keeps the locks of the silent session for `SILENCE`.
        wait_until(lambda: tick(reaper) > 0 and is_back(job_id))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reaper_that_died_is_replaced_by_the_next_request(
    short: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = publish(), publish()
    with override_settings(PULLJOBS=OFTEN):
        caller = Caller(short)

        def fail(*_args: Any) -> None:
            raise SystemExit

        with monkeypatch.context() as patch:
            patch.setattr(reaping.ServingReaper, "tick", fail)
            assert caller.move(first, "INFLIGHT").status_code == 202
            wait_until(lambda: not reaper_threads())
        assert caller.move(second, "INFLIGHT").status_code == 202
        pass_time()
        wait_until(lambda: is_back(first) and is_back(second))


FORKING = """
import django, os, signal, threading
django.setup()
from pulljobs.api import reaping
names = lambda: [thread.name for thread in threading.enumerate()]
reaping.ensure_reaping()
assert reaping.NAME in names()
reaping._starting.acquire()
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
signal.alarm(30)
assert reaping.NAME not in names()
reaping.ensure_reaping()
os._exit(0 if reaping.NAME in names() else 3)
"""


@pytest.mark.processes
def test_a_forked_server_process_has_a_reaper_of_its_own() -> None:
    """A process that is forked while a thread starts the reaper gets a reaper of its own."""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING], cwd=BASE_DIR, timeout=60
    )
    assert ended.returncode == 0


@override_settings(PULLJOBS=OFF)
def test_a_server_that_does_not_reap_says_so(
    short: Subscription, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reaping, "_has_warned", False)
    caller = Caller(short)
    with caplog.at_level(logging.WARNING, "pulljobs"):
        for _ in range(2):
            assert caller.move(publish(), "INFLIGHT").status_code == 202
    warnings = [text for text in caplog.messages if "REAP_WHILE_SERVING" in text]
    assert len(warnings) == 1
    assert reaper_threads() == []


@pytest.mark.parametrize(
    ("given", "urls", "warned"),
    [
        (OFF, "example_project.urls", 1),
        (OFF, "django.contrib.auth.urls", 0),
        ({}, "example_project.urls", 0),
    ],
)
def test_a_check_says_that_serving_processes_do_not_reap(
    given: dict[str, Any], urls: str, warned: int
) -> None:
    with override_settings(PULLJOBS=given, ROOT_URLCONF=urls):
        assert [check.id for check in run_checks()].count("pulljobs.W009") == warned
