"""What the guide on streams shows, works as it says."""

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from pulljobs.models import ArchivedJob
from tests.factories import ConsumerFactory, published
from tests.guides import forget, modules_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    try:
        yield modules_of("streams.md")
    finally:
        forget("shop")


def test_the_function_speaks_for_each_job(code: dict[str, ModuleType]) -> None:
    told = code["shop.scoring"].score(pd.DataFrame({"job_id": [1, 2], "payload": [b"250", b"-"]}))
    assert told.to_dict("records") == [
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
