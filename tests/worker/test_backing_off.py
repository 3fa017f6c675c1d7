"""Circuits: a consumer whose jobs fail in a row waits for a while, and its neighbours do not."""

import re
from datetime import timedelta

import pytest

from pulljobs.models import ArchivedJob, Attempt, Channel, Job, Node
from pulljobs.publishing import publish
from tests.factories import ConsumerFactory
from tests.sessions import wait_until
from tests.worker.processes import Stage, in_flight

pytestmark = pytest.mark.processes
FLAGS = (
    *("--concurrency", "2", "--backoff-after", "3", "--backoff-initial", "0.5"),
    *("--backoff-max", "2", "--heartbeat-interval", "0.1", "--reap-interval", "0.1"),
)


def circuits() -> dict[str, dict[str, object]]:
    node = Node.objects.first()
    return dict(node.report.get("circuits", {})) if node else {}


def test_failures_in_a_row_hold_jobs_back_until_a_probe(stage: Stage) -> None:
    """After failures in a row only single probes are claimed, with pauses, until one succeeds."""
    stage.consumer(retry_strategy="constant:60")
    failing = stage.publish(60, fail="the other side is down")
    worker = stage.worker(*FLAGS)
    wait_until(lambda: "script/plain" in circuits())
    wait_until(lambda: not in_flight())
    failed = len(stage.history("started"))
    assert failed < 30, "what was claimed before runs, the rest stays in the queue"
    probe = stage.wait_for("started", failed + 1)[failed]
    following = stage.wait_for("started", failed + 2)[failed + 1]
    assert following.at - probe.at > 1.5, "blocks grow, and one job goes between two of them"
    assert Attempt.objects.filter(event="release").count() < 60, "none is claimed in vain"
    Job.objects.filter(id__in=failing, state="QUEUED").delete()
    good = stage.publish(20)
    wait_until(lambda: ArchivedJob.objects.filter(job_id__in=good).count() == 20)
    wait_until(lambda: not circuits())
    assert "Jobs of script/plain fail: none is claimed" in worker.log
    wait_until(lambda: "Jobs of script/plain succeed again" in worker.log)
    assert worker.stop() == 0


def test_one_bad_job_and_its_neighbours_are_not_held_back(stage: Stage) -> None:
    stage.consumer(retry_strategy="constant:0.05", max_retries=8)
    ConsumerFactory.create(channel=Channel.objects.create(name="other"), name="plain")
    stage.publish(20, fail="the other side is down")
    worker = stage.worker(*FLAGS, "--backoff-initial", "600", "--backoff-max", "1200")
    wait_until(lambda: "script/plain" in circuits())
    publish("other", b"")
    stage.wait_for("other")
    assert worker.stop() == 0


def test_poison_messages_hold_back_no_other_job(stage: Stage) -> None:
    """Each poison message counts once, so fewer than `--backoff-after` never open the circuit."""
    stage.consumer(retry_strategy="constant:0.05", max_retries=1000)
    stage.publish(2, fail="poison")
    worker = stage.worker(*FLAGS, "--backoff-initial", "600", "--backoff-max", "1200")
    stage.wait_for("started", 12)
    assert not circuits()
    [good] = stage.publish()
    wait_until(lambda: ArchivedJob.objects.filter(job_id=good).exists())
    assert worker.stop() == 0


def test_recovery_does_not_depend_on_jobs_that_are_known_to_fail(stage: Stage) -> None:
    """A job of the lowest priority is the next probe, although poison messages come first."""
    stage.consumer(retry_strategy="constant:0", max_retries=1000)
    stage.publish(3, fail="poison")
    worker = stage.worker(*FLAGS)
    wait_until(lambda: "script/plain" in circuits())
    publish("script", b"{}", priority=-5)
    wait_until(lambda: ArchivedJob.objects.exists())
    levels = [int(level) for level in re.findall(r"then one \(level (\d+)\)", worker.log)]
    assert set(levels) == {1}, "the failures of known jobs raise no level"
    assert worker.stop() == 0


def test_a_job_that_is_held_back_is_charged_nothing(stage: Stage) -> None:
    """A job that the circuit holds back is released: `retry_count` and `deliveries` stay."""
    stage.consumer(retry_strategy="constant:0.05", max_retries=1000)
    stage.publish(3, fail="poison")
    worker = stage.worker(*FLAGS)
    given_back = Attempt.objects.filter(event="release")
    wait_until(lambda: given_back.count() > 3)
    assert worker.stop() == 0
    for job in Job.objects.all():
        assert job.retry_count == job.deliveries == stage.runs()[job.pk]


@pytest.mark.parametrize("flags", [["--backoff-max", "0"], ["--burst"]])
def test_without_back_off_all_jobs_may_fail_at_once(stage: Stage, flags: list[str]) -> None:
    stage.consumer(max_retries=0)
    stage.publish(60, fail="the other side is down")
    stage.worker(*flags)
    wait_until(lambda: set(Job.objects.values_list("state", flat=True)) == {"DEAD"})


def test_a_job_without_retries_left_is_given_up_once(stage: Stage) -> None:
    """`on_giving_up` is called once, for the DEAD job only. An error that it raises is logged."""
    stage.consumer(max_retries=1)
    [job] = stage.publish(fail="no luck", giving_up="no luck either")
    stage.publish(3)
    worker = stage.worker()
    wait_until(lambda: ArchivedJob.objects.count() == 4)
    stage.wait_for("given-up")
    assert [line.job for line in stage.history("given-up")] == [job]
    assert stage.runs()[job] == 2
    assert Job.objects.get(id=job).reason == "retries_exhausted"
    wait_until(lambda: "on_giving_up of script/plain failed" in worker.log)
    assert worker.stop() == 0


def test_a_job_over_its_limits_is_given_up_without_a_run(stage: Stage) -> None:
    """A job above a limit that was lowered while it waited is given up without a run."""
    consumer = stage.consumer()
    tired, fresh = stage.publish(2)
    Job.objects.filter(id=tired).update(retry_count=3, deliveries=3)
    consumer.max_retries, consumer.max_deliveries = 5, 3
    consumer.save()
    worker = stage.worker()
    wait_until(lambda: ArchivedJob.objects.count() == 2)
    assert [line.job for line in stage.wait_for("given-up")] == [tired]
    assert set(stage.runs()) == {fresh}
    assert Job.objects.get().reason == "max_deliveries"
    assert worker.stop() == 0


def test_retries_without_back_off_do_not_open_the_circuit(stage: Stage) -> None:
    stage.consumer(retry_strategy="constant:60")
    stage.publish(60, after=timedelta(hours=1).total_seconds(), backoff=False)
    worker = stage.worker()
    wait_until(lambda: set(Job.objects.values_list("retry_count", flat=True)) == {1})
    assert worker.stop() == 0
