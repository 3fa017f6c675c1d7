"""Jobs that are charged for the end of a process, and the isolation of crash suspects."""

import os
import signal
from datetime import timedelta
from itertools import pairwise
from uuid import uuid4

import pytest

from pulljobs import jobs, pulling
from pulljobs.engine.outcomes import Held
from pulljobs.models import ArchivedJob, Job, Lease
from pulljobs.pulling import Puller
from pulljobs.storage import jobs as storage
from tests.factories import USING
from tests.sessions import pass_time, wait_until
from tests.worker.processes import Stage, in_flight

pytestmark = pytest.mark.processes
HELD = int(os.environ.get("PULLJOBS_TEST_HELD", "160"))
"""Jobs that a dead node holds. The full size is 5000, of a second each."""
FULL = HELD >= 1000
SECONDS, THREADS = (1.0, 100) if FULL else (0.1, 8)
SECOND = timedelta(seconds=1)


def test_jobs_that_ran_in_a_dead_child_run_alone_the_next_time(stage: Stage) -> None:
    stage.consumer()
    suspects = stage.until_gate(4, seconds=0.1)
    worker = stage.worker("--concurrency", "4")
    stage.wait_for("started", 4)
    others = stage.publish(12, seconds=0.1)
    os.kill(worker.child, signal.SIGKILL)
    stage.open_gate()
    wait_until(lambda: not Job.objects.exists())
    assert set(stage.runs().values()) == {1, 2}
    assert {job for job, runs in stage.runs().items() if runs == 2} == set(suspects)
    spans = {line.job: [line.at, 0.0] for line in stage.history("started")}
    for line in stage.history("ended"):
        spans[line.job][1] = line.at
    alone = [spans[job] for job in suspects]
    all_spans = sorted(spans.values())
    for suspect in alone:
        assert [span for span in all_spans if span[0] < suspect[1] and span[1] > suspect[0]] == [
            suspect
        ]
    assert any(second[0] < first[1] for first, second in pairwise(all_spans)), "others ran together"
    retries = ArchivedJob.objects.filter(job_id__in=others).values_list("retry_count", "deliveries")
    assert set(retries) == {(0, 1)}
    assert worker.stop() == 0


def test_a_suspect_whose_handler_ends_is_no_suspect_any_more(stage: Stage) -> None:
    stage.consumer(retry_strategy="constant:0.1")
    [job] = stage.until_gate(fail="after all")
    worker = stage.worker()
    stage.wait_for("started")
    os.kill(worker.child, signal.SIGKILL)
    wait_until(lambda: Job.objects.get().suspect)
    stage.open_gate()
    wait_until(lambda: Job.objects.get().retry_count >= 2)
    assert not Job.objects.get(id=job).suspect
    assert worker.stop() == 0


def test_after_the_loss_of_a_host_only_jobs_known_to_run_are_charged(stage: Stage) -> None:
    """Jobs are charged after the loss of a host only if their leases name them as running."""
    stage.consumer(lease_duration=3 * SECOND, retry_strategy="constant:60")
    worker = stage.warm_worker("--concurrency", "2", "--reap-interval", "600")
    stage.until_gate(10)
    running = {line.job for line in stage.wait_for("started", 2)}
    wait_until(lambda: in_flight() > 2)
    wait_until(lambda: known_to_run() == running)
    worker.kill_all()
    pass_time()
    wait_until(lambda: pulling.reap() is not None)
    wait_until(lambda: pulling.reap() is None and not in_flight())
    charged = Job.objects.filter(retry_count=1, suspect=True).values_list("id", flat=True)
    assert set(charged) == running
    rest = Job.objects.exclude(id__in=running).values_list("state", "retry_count", "suspect")
    assert set(rest) == {("QUEUED", 0, False)}


def known_to_run() -> set[int]:
    return {job for lease in Lease.objects.all() for job in lease.running_ids or ()}


def test_jobs_that_were_claimed_by_another_protocol_are_never_suspects(stage: Stage) -> None:
    consumer = stage.consumer()
    [job] = stage.publish()
    taken = jobs_taken(consumer.pk, job)
    assert taken
    wait_until(lambda: pulling.reap() is not None)
    row = Job.objects.get(id=job)
    assert (row.retry_count, row.suspect) == (1, False)


def jobs_taken(consumer_id: int, job_id: int) -> object:
    return storage.take(
        USING,
        consumer_id,
        job_id,
        source=jobs.get(job_id).state,
        lease_duration=timedelta(milliseconds=10),
        max_lease=SECOND,
        via=Lease.Via.POST,
    )


def test_jobs_of_a_dead_node_drain_at_normal_speed(stage: Stage) -> None:
    """Jobs that ran are charged and isolated. Hundreds that only waited run in parallel."""
    consumer = stage.consumer(lease_duration=2 * SECOND, retry_strategy="constant:0")
    held = stage.publish(HELD, seconds=SECONDS)
    lost = Puller(USING, consumer, node_id=uuid4()).claim(HELD)
    assert lost.taken
    every = [Held(job, lost.taken.lease_token) for job in held]
    assert len(pulling.renew(every, running=held[:8])) == HELD
    worker = stage.worker("--concurrency", str(THREADS), "--reap-interval", "0.2").ready()
    wait_until(lambda: not Job.objects.exists(), 60 + 3 * HELD * SECONDS / THREADS)
    begun = {line.job: line.at for line in stage.history("started")}
    ended = {line.job: line.at for line in stage.history("ended")}
    spent = sum(ended[job] - begun[job] for job in held)
    assert spent > THREADS / 4 * (max(ended.values()) - min(begun.values())), "they run in parallel"
    charged = ArchivedJob.objects.filter(retry_count__gt=0).values_list("job_id", flat=True)
    assert set(charged) == set(held[:8])
    assert worker.stop() == 0
