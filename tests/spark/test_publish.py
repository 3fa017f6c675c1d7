"""Bulk publishes from a DataFrame: the rules of `publish`, all or nothing, once."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from pulljobs.models import BulkPublish, Job, Message
from pulljobs.spark.session import dsn
from tests.factories import ConsumerFactory

pytestmark = pytest.mark.django_db(transaction=True)


def write(df: DataFrame, channel: str, **options: object) -> None:
    writing = df.write.format("pulljobs").mode("append")
    writing.options(dsn=dsn(), channel=channel, **options).save()


@pytest.mark.parametrize("mode", ["atomic", "chunked"])
def test_every_row_becomes_a_message(spark: SparkSession, mode: str) -> None:
    consumer = ConsumerFactory.create()
    rows = spark.range(1000).selectExpr("concat('{\"n\": ', id, '}') AS payload")
    write(rows.repartition(3), consumer.channel.name, publishId="1", mode=mode)
    assert Job.objects.count() == Message.objects.count() == 1000
    done = BulkPublish.objects.get()
    assert (done.state, done.rows, done.messages, done.jobs) == ("done", 1000, 1000, 1000)
    write(rows.repartition(3), consumer.channel.name, publishId="1", mode=mode)
    assert Job.objects.count() == 1000
