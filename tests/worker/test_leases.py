"""Leases of a living worker: renewed, no more jobs than allowed, and dropped when lost."""

import os
import signal
from datetime import timedelta

import pytest
from django.core.checks import run_checks

from pulljobs import handlers, jobs, operating, pulling
from pulljobs.conf import LEAST_LEASE
from pulljobs.errors import ConfigurationError
from pulljobs.handlers import Handler
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.pulling import Puller
from pulljobs.storage import partitions
from tests.days import no_days
from tests.factories import USING, ConsumerFactory
from tests.sessions import blocked_by, query, session, wait_until
from tests.worker.processes import Stage, in_flight, renewed

pytestmark = pytest.mark.processes
SECOND = timedelta(seconds=1)
EXCLUSIVE_LOCKS = """
SELECT pid FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock'
AND relation = 'pulljobs_message'::regclass AND pid <> pg_backend_pid()
"""


def test_leases_of_running_and_of_waiting_jobs_are_renewed(stage: Stage) -> None:
    """The leases of the running job and of the one that waits for the only thread are renewed.

    Reaping is off, in case the machine is slow.
    """
    stage.consumer(lease_duration=2 * SECOND)
    worker = stage.warm_worker("--concurrency", "1", "--reap-interval", "600")
    every = stage.until_gate(2)
    stage.wait_for("started")
    wait_until(lambda: renewed(1) == set(every))
    wait_until(lambda: len(renewed(5)) == 1)
    stage.open_gate()
    wait_until(lambda: not Job.objects.exists())
    assert stage.runs() == dict.fromkeys(every, 1)
    assert set(ArchivedJob.objects.values_list("retry_count", flat=True)) == {0}
    assert "Lost" not in worker.log


def test_jobs_in_flight_never_exceed_the_limit(stage: Stage) -> None:
    """At most `--max-held` jobs are in flight, with those whose outcomes are not written yet."""
    stage.consumer()
    stage.publish(300, seconds=0.01)
    worker = stage.worker(
        "--burst", "--concurrency", "4", "--max-held", "10", "--flush-interval", "0.1"
    )
    samples: set[int] = set()
    while worker.process.poll() is None:
        samples.add(in_flight())
    assert worker.ended() == 0, worker.log
    assert 4 < max(samples) <= 10
    assert ArchivedJob.objects.count() == 300


def test_a_worker_that_lost_its_lease_changes_nothing(stage: Stage) -> None:
    """A worker that wakes after another took its job writes nothing when its handler ends."""
    consumer = stage.consumer(lease_duration=SECOND)
    [job] = stage.until_gate()
    worker = stage.worker("--reap-interval", "600", "--max-fetch-interval", "600")
    stage.wait_for("started")
    frozen = worker.child
    os.kill(frozen, signal.SIGSTOP)
    wait_until(lambda: pulling.reap() is not None)
    claim = Puller(USING, consumer).claim(1, lease_duration=600 * SECOND)
    assert claim.taken
    before = list(Job.objects.values()), list(Lease.objects.values())
    stage.open_gate()
    os.kill(frozen, signal.SIGCONT)
    stage.wait_for("lost")
    wait_until(lambda: "Lost the leases of jobs, whose outcomes were not written: 1." in worker.log)
    assert worker.stop() == 0
    assert (list(Job.objects.values()), list(Lease.objects.values())) == before
    assert Lease.objects.get().lease_token == claim.taken.lease_token
    assert not ArchivedJob.objects.filter(job_id=job).exists()


@pytest.mark.owner
@pytest.mark.slow
def test_a_worker_that_freezes_while_it_creates_a_partition_blocks_the_others_only_briefly(
    stage: Stage,
) -> None:
    """The frozen worker soon loses its exclusive lock on the table. When it wakes, it works on."""
    stage.consumer()
    with no_days(), session() as other:
        other.execute("LOCK TABLE pulljobs_message_default IN ROW EXCLUSIVE MODE")
        worker = stage.worker("--maintenance-interval", "1").ready()
        frozen = worker.child
        wait_until(lambda: blocked_by(other))
        os.kill(frozen, signal.SIGSTOP)
        other.rollback()
        wait_until(lambda: bool(query(EXCLUSIVE_LOCKS)))
        stage.publish()
        assert not query(EXCLUSIVE_LOCKS)
        os.kill(frozen, signal.SIGCONT)
        stage.wait_for("ended")
        wait_until(lambda: not Job.objects.exists())
        wait_until(lambda: bool(partitions.existing(USING, "pulljobs_message")))
        assert worker.stop() == 0


def test_jobs_run_once_even_if_their_lease_is_too_short_to_be_renewed(stage: Stage) -> None:
    stage.consumer(lease_duration=SECOND / 10, retry_strategy="constant:0")
    every = stage.publish(10, seconds=1)
    flags = ("--flush-interval", "1", "--reap-interval", "0.1", "--concurrency", "10")
    worker = stage.worker(*flags)
    wait_until(lambda: not Job.objects.exists())
    assert stage.runs() == dict.fromkeys(every, 1)
    assert "has a lease of 0.1 s, which ends before it can be renewed" in worker.log
    assert worker.stop() == 0


def test_a_check_names_consumers_whose_lease_is_too_short(transactional_db: None) -> None:
    short = ConsumerFactory.create(lease_duration=SECOND / 2)
    ConsumerFactory.create(lease_duration=LEAST_LEASE)
    [warning] = [
        check for check in run_checks(databases=["default", USING]) if check.id == "pulljobs.W011"
    ]
    assert f"Leases of {short.channel.name}/{short.name} are shorter than 1 s" in warning.msg


def test_a_handler_with_a_lease_too_short_to_be_renewed_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="lease_duration: It must be at least 1 s"):
        handlers.check(
            Handler(
                channel="c",
                consumer="c",
                function=print,
                defaults={"lease_duration": LEAST_LEASE - SECOND / 100},
            )
        )


def test_the_handler_of_a_killed_job_is_notified(stage: Stage) -> None:
    stage.consumer(lease_duration=SECOND)
    [job] = stage.until_gate(heed=True)
    worker = stage.worker()
    stage.wait_for("started")
    assert operating.kill([job], by="test").done == [job]
    stage.wait_for("lost")
    assert worker.stop() == 0
    assert jobs.get(job).state == "DEAD"
