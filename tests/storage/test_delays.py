"""SQL computes the same delay before a retry as `Delays.before()`."""

from datetime import timedelta

import pytest

from pulljobs.backoff import expand
from pulljobs.engine import outcomes
from pulljobs.errors import LONGEST_DELAY
from pulljobs.models import Consumer, Job
from pulljobs.storage import jobs
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import SLACK, query

pytestmark = pytest.mark.django_db

ROUNDED = 0.001
RETRIES = [1, 2, 3, 4, 10, 64, 65, 199, 200, 201, 2000, 32_000]
STRATEGIES = [
    "constant:10",
    "constant:0",
    "linear:1+2",
    "linear:3<20",
    "exponential:1",
    "exponential:0.5x3<60",
    "5,30,60",
    "7",
    "0,0,1.5",
    "31536000",
]


def planned(consumer: Consumer, retry: int) -> tuple[float, float]:
    """Return the least and the most seconds from a failure to its retry number `retry`."""
    published(consumer)
    query("UPDATE pulljobs_job SET retry_count = %s WHERE state = 'QUEUED'", [retry - 1])
    [held] = claimed(consumer)
    [(before,)] = query("SELECT clock_timestamp()")
    jobs.finish(USING, [outcomes.retry(held, "bad")])
    [(least, most)] = query(
        "SELECT extract(epoch FROM available_at - clock_timestamp())::float8,"
        " extract(epoch FROM available_at - %s)::float8 FROM pulljobs_job WHERE id = %s",
        [before, held.job_id],
    )
    query("DELETE FROM pulljobs_job")
    return float(least), float(most)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_delay_before_each_retry(strategy: str) -> None:
    consumer = ConsumerFactory.create(retry_strategy=strategy, max_retries=32_767)
    delays = expand(strategy)
    for retry in RETRIES:
        least, most = planned(consumer, retry)
        assert least - ROUNDED <= delays.before(retry) <= most + ROUNDED


@pytest.mark.parametrize("strategy", ["constant:100", "exponential:80", "100,200", "31536000"])
def test_jitter_stays_inside_the_cap(strategy: str) -> None:
    consumer = ConsumerFactory.create(retry_strategy=strategy, retry_jitter=0.5, max_retries=32_767)
    delays = expand(strategy)
    for retry in (1, 2, 3, 50):
        middle = delays.before(retry)
        got = [planned(consumer, retry) for _ in range(8)]
        longest = min(middle * 1.5, delays.cap) + ROUNDED
        assert all(middle * 0.5 <= most + ROUNDED for _least, most in got)
        assert all(least <= longest for least, _most in got)
        assert max(most for _least, most in got) - min(most for _least, most in got) > 0.1


@pytest.mark.parametrize(
    "after", [timedelta(milliseconds=1), timedelta(days=400, seconds=0.25), LONGEST_DELAY]
)
def test_the_delay_that_a_handler_names(after: timedelta) -> None:
    """Each day of a delay that a handler names has 24 hours, even if the clocks are changed."""
    consumer = ConsumerFactory.create()
    held = claimed(consumer, len(published(consumer, 2)))
    [(before,)] = query("SELECT clock_timestamp()")
    query("SET TIME ZONE 'Europe/Berlin'")
    jobs.finish(USING, [outcomes.retry(each, "later", after=after) for each in held])
    query("SET TIME ZONE 'UTC'")
    for job in Job.objects.all():
        late = job.available_at - before - after
        assert timedelta(0) <= late < timedelta(seconds=SLACK + 1)
