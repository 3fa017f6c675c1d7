"""The code of the guides on streams and on bulk publishing works as described."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from pyspark.sql import Row, SparkSession

from pulljobs.lake.spark import session
from pulljobs.models import ArchivedJob, Job
from pulljobs.publishing import publish
from tests.factories import ConsumerFactory, published
from tests.guides import forget, modules_of
from tests.lake.streams import source

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    try:
        yield modules_of("guides/streams.md") | modules_of("guides/bulk-publish.md")
    finally:
        forget("shop")


def test_the_function_returns_an_outcome_for_each_job(code: dict[str, ModuleType]) -> None:
    outcomes = code["shop.scoring"].score(
        pd.DataFrame({"job_id": [1, 2], "payload": [b"250", b"-"]})
    )
    assert outcomes.to_dict("records") == [
        {"job_id": 1, "outcome": "deliver", "error": None, "result": '{"score": 2.5}'},
        {"job_id": 2, "outcome": "reject", "error": "no amount", "result": '{"score": nan}'},
    ]


def test_the_query_copies_every_job_once(
    spark: SparkSession, code: dict[str, ModuleType], tmp_path: Path
) -> None:
    consumer = ConsumerFactory.create(name="lake", channel__name="orders")
    made = published(consumer, 3)
    query = code["shop.copying"].copy(spark, str(tmp_path))
    query.awaitTermination()
    assert query.exception() is None
    rows = spark.read.parquet(str(tmp_path / "orders")).collect()
    assert sorted(row.job_id for row in rows) == made
    assert set(ArchivedJob.objects.values_list("job_id", "state")) == {
        (job, "DELIVERED") for job in made
    }


def test_failed_rows_are_settled_separately(code: dict[str, ModuleType]) -> None:
    """The code of the guide rejects a job without a payload and retries another one."""
    consumer = ConsumerFactory.create(name="lake", channel__name="orders")
    [empty] = publish("orders", b"").job_ids
    [busy] = publish("orders", b"x").job_ids
    with source(consumer) as stream:
        for row in stream.run():
            code["shop.failing"].settle(session.dsn(), Row(**row))
    assert Job.objects.get(pk=empty).error == "no such customer"
    assert Job.objects.get(pk=busy).error == "the bank is away"


def test_rows_are_published_once(spark: SparkSession, code: dict[str, ModuleType]) -> None:
    consumer = ConsumerFactory.create(name="billing", channel__name="orders")
    rows = spark.createDataFrame([("a",), ("b",)], "payload string")
    for _ in range(2):
        code["shop.publishing"].publish(rows, session.dsn())
    assert Job.objects.filter(consumer=consumer).count() == 2
