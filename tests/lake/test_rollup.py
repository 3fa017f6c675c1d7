"""Rollups equal a count by SQL over the archive, even if rows come late or are counted again."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random
from typing import Any, Final

import pyarrow as pa
import pytest
from django.db import connection
from pyspark.sql import SparkSession

from pulljobs.errors import LakeError
from pulljobs.lake.models import (
    BulkPublish,
    ErrorFingerprint,
    HotKey,
    NodeCost,
    Rollup,
    RollupRun,
)
from pulljobs.lake.models.rollups import Period
from pulljobs.lake.rollups import running
from pulljobs.lake.rollups.arrow_errors import simplify
from pulljobs.lake.rollups.errors import LONGEST_SHAPE, fingerprint
from pulljobs.lake.rollups.running import RolledUp, _RollupRun
from pulljobs.lake.spark import tables
from pulljobs.lake.spark.tables import Table
from pulljobs.models import Consumer
from tests.factories import USING, ConsumerFactory
from tests.lake.history import NODES, NOON, SECOND, History, Lake
from tests.sessions import session as database_session

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
ZONE: Final = "spark.sql.session.timeZone"
DEATHS: Final[list[dict[str, Any]]] = [
    {"reason": "killed"},
    {"reason": "rejected", "error": "ValueError: no 17 in 'x'  at 0x7f3a\nTraceback"},
    {"reason": "rejected", "error": "ValueError: no 4 in 'y' at 0x9"},
    {
        "reason": "timed_out",
        "error": "  Zu spät, größer 12,5 s; id 123e4567-e89b-42d3-a456-426614174000",
    },
    {"reason": "timed_out", "error": "  Zu spät, größer 3 s; id ab12cd34ef56ab12"},
]
PIECES: Final = [
    *("0x", "0", "1", "17", "x", "0x7f3a", "0x0", " ", "  ", "\n", "\t", "\r", "\x85", "\u2028"),
    *("'", '"', ".", ",", ":", "_", "-", "ä", "٢", "abc12def34ff", "aaaaaaaaaaaa"),
    "123e4567-e89b-42d3-a456-426614174000",
]
"""Texts from which errors are composed, and which fingerprints of errors treat differently."""
COUNTED = """
SELECT
    date_trunc(%s, settled_at, 'UTC'),
    consumer_id,
    count(*) FILTER (WHERE state = 'DELIVERED'),
    count(*) FILTER (WHERE state = 'DEAD'),
    sum(retry_count)::int,
    sum(deliveries - 1)::int,
    count(*) FILTER (WHERE deliveries > 1),
    min(settled_at),
    max(settled_at)
FROM pulljobs_archived_job
GROUP BY 1, 2
ORDER BY 1, 2
"""


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def lake() -> Lake:
    """Lake whose rollups are counted by this process, not by Spark."""
    return Lake()


@pytest.fixture
def consumer() -> Consumer:
    return subscribed(NOON - timedelta(days=90))


def subscribed(since: datetime, **fields: object) -> Consumer:
    made = ConsumerFactory.create(**fields)
    Consumer.objects.filter(pk=made.pk).update(created_at=since)
    return made


def counted_by_sql(period: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(COUNTED, [period])
        return list(cursor.fetchall())


def rolled_up(period: str) -> list[tuple[object, ...]]:
    rows = Rollup.objects.filter(period=period).order_by("starts_at", "consumer")
    return list(
        rows.values_list(
            "starts_at", "consumer", "delivered", "dead", "retries", "redeliveries", "duplicates",
            "first_settled_at", "last_settled_at",
        )
    )  # fmt: skip


def row(period: str, starts_at: datetime, consumer: Consumer) -> Rollup:
    return Rollup.objects.get(period=period, starts_at=starts_at, consumer=consumer)


def some_history(history: History, *consumers: Consumer, rows: int = 200) -> None:
    """Write settlements of these consumers around midnight at the end of a month."""
    random = Random(1)
    for _ in range(rows):
        retries = random.choice([0, 0, 0, 1, 3])
        given: dict[str, Any] = (
            {} if random.random() < 0.8 else {"reason": "rejected", "error": "No."}
        )
        history.settle(
            random.choice(consumers),
            NOON + random.uniform(9, 15) * HOUR,
            retry_count=retries,
            deliveries=retries + 1,
            node_id=random.choice(NODES),
            **given,
        )


def test_rows_equal_a_plain_count(lake: Lake, history: History, consumer: Consumer) -> None:
    """Rollups of hours, days and months equal a count by SQL, and a recount changes nothing."""
    some_history(history, consumer, subscribed(NOON, channel=consumer.channel))
    lake.export()
    done = lake.roll_up()
    assert (done.settlements, done.rows["month"]) == (200, 4)
    for period in Period.values:
        assert rolled_up(period) == counted_by_sql(period)
    before = list(
        Rollup.objects.order_by("pk").values("pk", "delivered", "wait_p95", "run_seconds")
    )
    lake.roll_up(recount=True)
    after = list(Rollup.objects.order_by("pk").values("pk", "delivered", "wait_p95", "run_seconds"))
    assert after == before


def test_late_rows_touch_their_hour_only(lake: Lake, history: History, consumer: Consumer) -> None:
    """A late settlement changes only the rollups of its hour, day and month."""
    some_history(history, consumer)
    lake.export()
    lake.roll_up()
    others = Rollup.objects.exclude(starts_at=NOON + 9 * HOUR)
    untouched = list(others.filter(period="hour").values_list("pk", flat=True))
    Rollup.objects.filter(pk__in=untouched).update(published=77)
    history.settle(consumer, NOON + 9.5 * HOUR)
    lake.export()
    done = lake.roll_up()
    assert done.hours == 1
    assert Rollup.objects.filter(pk__in=untouched, published=77).count() == len(untouched)
    for period in Period.values:
        assert rolled_up(period) == counted_by_sql(period)


def test_rows_of_files_that_were_compacted_are_counted_once_they_are_new(
    lake: Lake, history: History, consumer: Consumer
) -> None:
    """Hours with new rows are counted again although compaction moved the rows to other files."""
    some_history(history, consumer)
    history.message(consumer, NOON + 9.2 * HOUR)
    lake.export()
    lake.roll_up()
    history.settle(consumer, NOON + 9.5 * HOUR)
    history.message(consumer, NOON + 9.6 * HOUR)
    lake.export()
    for table in ("archive", "messages"):
        assert (held := Table(tables.location(), table).delta())
        held.optimize.compact()
    assert lake.roll_up().hours == 1
    for period in Period.values:
        assert rolled_up(period) == counted_by_sql(period)
    assert row("hour", NOON + 9 * HOUR, consumer).published == 2
    history.settle(consumer, NOON + 12.5 * HOUR)
    lake.export()
    assert lake.roll_up().hours == 1


def test_nothing_new_starts_no_spark(lake: Lake, history: History, consumer: Consumer) -> None:
    assert lake.roll_up(always_spark=True).hours == 0
    history.settle(consumer, NOON)
    lake.export()
    lake.roll_up()
    assert lake.roll_up(always_spark=True).hours == 0
    assert RollupRun.objects.count() == 1


@pytest.mark.parametrize(
    ("module", "name", "value"),
    [(running, "MOST_HERE", 0), (running, "find_spec", lambda _library: None)],
    ids=["many rows", "no library of sketches"],
)
def test_spark_counts_what_this_process_can_not(
    module: object,
    name: str,
    value: object,
    lake: Lake,
    history: History,
    consumer: Consumer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history.settle(consumer, NOON)
    lake.export()
    monkeypatch.setattr(module, name, value)
    with pytest.raises(AssertionError, match="Spark was asked for"):
        lake.roll_up()


@pytest.mark.owner
def test_it_knows_as_much_as_an_open_transaction_let_the_export_take(
    lake: Lake, history: History, consumer: Consumer
) -> None:
    """A rollup run records the time up to which the lake was complete."""
    history.settle(consumer, NOON)
    with database_session() as writer:
        writer.execute("SELECT pg_current_xact_id()")
        history.settle(consumer, NOON + HOUR)
        lake.export()
        held_back = lake.roll_up()
    assert held_back.known_until == NOON + HOUR
    assert Rollup.objects.filter(period="hour").count() == 1
    lake.export()
    known_until = lake.roll_up().known_until
    assert known_until is not None
    assert known_until > NOON + HOUR


def random_history(
    history: History, consumers: list[Consumer], random: Random, hours: tuple[float, float]
) -> None:
    """Write settlements and messages in these hours after noon, with all that a rollup counts."""
    dead: list[int] = []
    for number in range(150):
        at = NOON + random.uniform(*hours) * HOUR
        consumer = random.choice(consumers)
        history.message(consumer, at, key=random.choice(["a", "a", "b", None]))
        given: dict[str, Any] = {
            "retry_count": random.choice([0, 0, 0, 1]),
            "node_id": random.choice(NODES),
            "run": random.randrange(1, 900) / 8 + number,
        }
        given["deliveries"] = given["retry_count"] + random.choice([1, 1, 2])
        if random.random() < 0.4:
            given |= random.choice(DEATHS)
        elif dead and random.random() < 0.3:
            given["job_id"] = random.choice(dead)
        if random.random() < 0.1:
            given |= dict.fromkeys(("claimed_at", "started_at", "run_seconds", "node_id"))
        settled = history.settle(consumer, at, wait=random.randrange(1, 99) / 8, **given)
        dead += [settled.job_id] * ("reason" in given)


def stored() -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of rollups, hot keys, errors and node costs, without ids and sketches."""
    names = [field.name for field in Rollup._meta.fields if not field.name.endswith("_sketch")]
    names.remove("id")
    of_rollup = ("rollup__period", "rollup__starts_at", "rollup__consumer")
    parts = {
        HotKey: ("key", "jobs"),
        ErrorFingerprint: ("fingerprint", "reason", "jobs", "sample", "sample_job"),
        NodeCost: ("node_id", "jobs", "dead", "run_seconds"),
    }
    return {
        "rollups": sorted(Rollup.objects.values_list(*names), key=str),
        **{
            model.__name__: sorted(
                model._default_manager.values_list(*of_rollup, *columns), key=str
            )
            for model, columns in parts.items()
        },
    }


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[None]:
    """Give Spark's session a time zone whose hours begin within those of UTC."""
    before = spark.conf.get(ZONE)
    assert before
    spark.conf.set(ZONE, "Asia/Kathmandu")
    yield
    spark.conf.set(ZONE, before)


def test_spark_and_this_process_count_equal_rows(
    lake: Lake, history: History, consumer: Consumer, spark: SparkSession, zone: None
) -> None:
    """Rollups by Spark and by this process are equal, and each merges the sketches of the other.

    Spark forgets its own jobs, which would keep 64 MB of data sent to tasks for each rollup.
    """
    lake.spark, random = spark, Random(3)
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    active = scheduler.activeQueryToJobs().size()
    consumers = [consumer, subscribed(NOON + 10.4 * HOUR, channel=consumer.channel)]
    BulkPublish.objects.create(
        publish_id="replay", channel=consumer.channel, only_consumer=consumer, mode="atomic",
        state="done", messages=3, opened_at=NOON, touched_at=NOON, settled_at=NOON + 11 * HOUR,
    )  # fmt: skip
    random_history(history, consumers, random, (9, 15))
    lake.export()
    lake.roll_up()
    random_history(history, consumers, random, (10, 11.9))
    lake.export()
    for table in ("archive", "messages"):
        assert (held := Table(tables.location(), table).delta())
        held.optimize.compact()
    lake.roll_up()
    counted_here = stored()
    RollupRun.objects.latest("pk").delete()
    Rollup.objects.exclude(starts_at=NOON + 9 * HOUR).filter(
        starts_at__lt=NOON + 12 * HOUR
    ).delete()
    lake.roll_up(always_spark=True)
    assert stored() == counted_here
    assert scheduler.activeQueryToJobs().size() == active
    history.settle(consumer, NOON + 9.5 * HOUR)
    lake.export()
    assert lake.roll_up().hours == 1
    merged = stored()
    lake.roll_up(recount=True)
    assert stored() == merged


def test_errors_that_are_counted_together_keep_their_fingerprint() -> None:
    """Similar errors, for example with other digits, are counted by one simplified text.

    The fingerprint of that text is the fingerprint of the error.
    """
    random = Random(5)
    errors = ["".join(random.choices(PIECES, k=random.randrange(30))) for _ in range(5_000)]
    errors += ["a" * length + "0x12 7" for length in range(480, 510)]
    lines = simplify(pa.array(errors)).to_pylist()
    assert len(set(lines)) < len(set(errors))
    for error, line in zip(errors, lines, strict=True):
        first_line = error.strip(" ").partition("\n")[0][:LONGEST_SHAPE]
        assert fingerprint(line) == fingerprint(first_line), error


def test_all_figures_of_an_hour_are_rolled_up(
    lake: Lake, history: History, consumer: Consumer
) -> None:
    """A rollup has hot keys, errors, reasons, nodes, and messages since the consumer was made."""
    late = subscribed(NOON + 1000 * SECOND, channel=consumer.channel)
    for second in range(0, 2000, 100):
        history.message(consumer, NOON + second * SECOND, key="hot" if second % 400 else "cool")
    for second in range(1, 101):
        history.settle(consumer, NOON + second * SECOND, wait=second / 100, run=second / 10)
    for number in range(3):
        history.settle(
            consumer,
            NOON,
            reason="rejected",
            error=f"ValueError: no {number} in 'x{number}'\n\nTraceback, {number}",
            node_id=NODES[1],
            run=1000.0,
        )
    never: dict[str, Any] = dict.fromkeys(("claimed_at", "started_at", "run_seconds", "node_id"))
    history.settle(consumer, NOON, reason="killed", **never)
    again = history.settle(consumer, NOON + 200 * SECOND, reason="timed_out", error=None, run=0.1)
    for _ in range(5):
        history.settle(consumer, NOON + 3000 * SECOND, wait=2990.0, run=1.0, job_id=again.job_id)
    lake.export()
    lake.roll_up()
    hour = row("hour", NOON, consumer)
    assert (hour.published, row("hour", NOON, late).published) == (20, 10)
    assert [(hot.key, hot.jobs) for hot in hour.hot_keys.all()] == [("hot", 15), ("cool", 5)]
    assert hour.dead_by_reason == {"killed": 1, "rejected": 3, "timed_out": 1}
    worst, *others = hour.errors.all()
    assert (worst.jobs, worst.sample.partition("\n")[0]) == (3, "ValueError: no 0 in 'x0'")
    assert {other.jobs for other in others} == {1}
    assert hour.wait_p50 == pytest.approx(0.5, abs=0.05)
    assert (hour.wait_p99, hour.run_p95) == pytest.approx((1.0, 9.8), abs=0.15)
    assert (hour.settled_again, hour.slowest_seconds) == (5, 1000.0)
    costs = {cost.node_id: (cost.jobs, cost.dead) for cost in hour.nodes.all()}
    assert costs == {NODES[0]: (106, 1), NODES[1]: (3, 3), None: (1, 1)}
    month = row("month", NOON.replace(day=1, hour=0), consumer)
    assert (month.wait_p95, month.dead_by_reason) == (hour.wait_p95, hour.dead_by_reason)
    assert month.hot_keys.count() == 2


def test_run_times_are_those_of_handlers_and_not_of_leases(
    lake: Lake, history: History, consumer: Consumer
) -> None:
    """Settlements without a run, as by HTTP clients, do not count in run times."""
    remote = subscribed(NOON - timedelta(days=1), channel=consumer.channel)
    unreported: dict[str, Any] = {"started_at": None, "run_seconds": None}
    for run in (1.0, 2.0, 6.0):
        history.settle(consumer, NOON + HOUR / 2, run=run)
        history.settle(consumer, NOON + HOUR / 2, run=600.0, **unreported)
        history.settle(remote, NOON + HOUR / 2, run=600.0, **unreported)
    lake.export()
    lake.roll_up()
    hour = row("hour", NOON, consumer)
    assert (hour.delivered, hour.run_seconds, hour.slowest_seconds) == (6, 9.0, 6.0)
    assert (hour.run_p50, hour.run_p99) == (2.0, 6.0)
    assert [node.run_seconds for node in hour.nodes.all()] == [9.0]
    for period in Period.values:
        other = Rollup.objects.get(period=period, consumer=remote)
        assert (other.delivered, other.run_seconds, other.slowest_seconds) == (3, 0.0, None)
        assert (other.run_p50, other.run_p99) == (None, None)
        assert other.total_p50 == 601.5


def test_what_was_published_for_one_consumer_is_not_the_others(
    lake: Lake, history: History, consumer: Consumer
) -> None:
    """Messages for one consumer do not count for others, even if those were created later."""
    other, late = (
        subscribed(since, channel=consumer.channel) for since in (NOON, NOON + 1000 * SECOND)
    )
    for second in (100, 100, 100, 2000, 2000):
        history.message(consumer, NOON + second * SECOND)
    BulkPublish.objects.create(
        publish_id="replay", channel=consumer.channel, only_consumer=consumer, mode="atomic",
        state="done", messages=3, opened_at=NOON, touched_at=NOON, settled_at=NOON + 100 * SECOND,
    )  # fmt: skip
    history.settle(consumer, NOON)
    lake.export()
    lake.roll_up()
    assert [row("hour", NOON, each).published for each in (consumer, other, late)] == [5, 2, 2]


def test_the_slower_of_two_runs_writes_nothing(
    lake: Lake, history: History, consumer: Consumer
) -> None:
    """If two runs began together, the one that ends last fails, so that no hour counts twice."""
    history.settle(consumer, NOON)
    lake.export()
    slower = _RollupRun.prepared(USING, tables.location(), recount=False)
    lake.roll_up()
    before = list(Rollup.objects.values_list("pk", "delivered"))
    with pytest.raises(LakeError, match="run the command again"):
        slower.save([], RolledUp(), 0.0)
    assert list(Rollup.objects.values_list("pk", "delivered")) == before
    assert RollupRun.objects.count() == 1
