"""The batch reader: rows of the archive, the messages and the live jobs."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col

from pulljobs.lake.spark.failures import summarize_error
from pulljobs.lake.spark.session import dsn
from pulljobs.models import ArchivedJob, Job
from pulljobs.publishing import Draft, publish_many
from pyspark_pulljobs import reading
from pyspark_pulljobs.reading import IdRange, PushingReader
from tests.factories import ConsumerFactory, JobFactory

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = 30


@pytest.fixture
def consumer() -> Any:
    consumer = ConsumerFactory.create(max_queued_per_key=1000)
    drafts = [Draft(payload=f"{n}", key=f"k{n % 3}", priority=n % 2) for n in range(JOBS)]
    publish_many(consumer.channel.name, drafts)
    for state in ("DELIVERED", "DEAD"):
        JobFactory.create(consumer=consumer, state=state)
    return consumer


def read_table(spark: SparkSession, table: str, schema: str = "", **options: Any) -> DataFrame:
    reader = spark.read.format("pulljobs").options(dsn=dsn(), table=table, **options)
    return (reader.schema(schema) if schema else reader).load()


@pytest.mark.parametrize("how", ["adbc", "copy"])
def test_rows_are_those_of_the_table(spark: SparkSession, consumer: Any, how: str) -> None:
    jobs = read_table(spark, "jobs", reader=how).collect()
    assert {row.id for row in jobs} == set(Job.objects.values_list("id", flat=True))
    queued = next(row for row in jobs if row.state == "QUEUED")
    job = Job.objects.get(pk=queued.id)
    assert (queued.channel, queued.consumer) == (consumer.channel.name, consumer.name)
    assert (queued.key, queued.priority, queued.message_id) == (
        job.key,
        job.priority,
        job.message_id,
    )
    archived = {row.job_id: row for row in read_table(spark, "archive", reader=how).collect()}
    assert {id: row.state for id, row in archived.items()} == dict(
        ArchivedJob.objects.values_list("job_id", "state")
    )
    messages = read_table(spark, "messages", "id long, payload binary, headers string", reader=how)
    payloads = [bytes(row.payload).decode() for row in messages.orderBy("id").collect()]
    assert payloads[:JOBS] == [str(n) for n in range(JOBS)]


def test_filters_and_columns_go_to_postgresql(consumer: Any) -> None:
    """PostgreSQL gets the columns and the filters that it can apply, Spark the other filters."""
    given = {"dsn": dsn(), "table": "jobs", "pushdown": "true"}
    from pyspark.sql import types
    from pyspark.sql.datasource import (
        EqualTo,
        GreaterThan,
        In,
        IsNull,
        LessThan,
        StringContains,
        StringStartsWith,
    )

    schema = types.StructType([types.StructField("id", types.LongType())])
    reader = reading.reader(given, schema)
    assert isinstance(reader, PushingReader)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    left = list(
        reader.pushFilters(
            [
                EqualTo(("state",), "QUEUED"),
                In(("key",), ("k1", "k'2\\")),
                GreaterThan(("priority",), -1),
                LessThan(("available_at",), at),
                StringStartsWith(("key",), "k"),
                IsNull(("reason",)),
                StringContains(("key",), "1"),
                LessThan(("available_at",), at.replace(tzinfo=None)),
            ]
        )
    )
    assert [type(filter).__name__ for filter in left] == ["StringContains", "LessThan"]
    assert reader._query(IdRange(0, 2**62)).startswith("SELECT t.id AS id FROM pulljobs_job")
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch[0]]
    keyed = Job.objects.filter(key="k1", state="QUEUED")
    assert sorted(row.as_py() for row in rows) == sorted(keyed.values_list("id", flat=True))


def test_pushed_filters_find_what_filters_of_spark_find(spark: SparkSession, consumer: Any) -> None:
    wanted = (col("priority") >= 1) & col("key").isin("k0", "k2") & col("reason").isNull()
    wanted &= col("available_at") < datetime.now(UTC) + timedelta(days=1)
    wanted &= (col("key") > "K") & col("error").isNull()
    ids = [
        sorted(
            row.id for row in read_table(spark, "jobs", pushdown=pushdown).filter(wanted).collect()
        )
        for pushdown in ("true", "false")
    ]
    assert ids[0] == ids[1] != []


def test_an_empty_table(spark: SparkSession) -> None:
    """The reader returns no rows for an empty table."""
    assert read_table(spark, "archive").count() == 0


@pytest.mark.parametrize(
    ("options", "schema", "error"),
    [
        ({"table": "leases"}, "", "must be archive or messages or jobs, not 'leases'"),
        ({"table": "jobs"}, "id long, stat string", "did you mean 'state'"),
        ({"table": "jobs"}, "id string", "is of type bigint, not string"),
        ({"table": "jobs", "partitions": "0"}, "", "must be 1 or more"),
        ({"table": "jobs", "fast": "1"}, "", "'fast' is no option"),
        ({"table": "jobs", "reader": "jdbc"}, "", "must be adbc or copy"),
    ],
)
def test_a_mistake_is_reported_in_one_line(
    spark: SparkSession, options: dict[str, str], schema: str, error: str
) -> None:
    with pytest.raises(PySparkException) as failed:
        read_table(spark, schema=schema, **options).collect()
    assert error in summarize_error(failed.value)
