"""Spark driver in a process that is killed: `python -m tests.lake.driver ORDERS_AS_JSON`."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_pulljobs import DefaultSource
from pyspark_pulljobs.sink import SinkWriter


def main(orders: dict[str, Any]) -> None:
    builder = SparkSession.builder.master(orders["master"])
    for name, value in orders["conf"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    globals()[orders["do"]](spark, orders)


def publish(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Publish a message for each number below `count`, through Spark."""
    spark.dataSource.register(DefaultSource)
    rows = spark.range(0, orders["count"], 1, orders["tasks"]).selectExpr(
        "cast(id AS string) AS payload"
    )
    rows.write.format("pulljobs").mode("append").options(**orders["options"]).save()


def failing() -> Any:
    """Return a function for `mapInArrow` that makes every third task fail twice.

    Such a task fails once before its rows and once after them.
    """

    def passed(batches: Any) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        ours = context.partitionId() % 3 == 0
        if ours and context.attemptNumber() == 0:
            raise RuntimeError("before its rows")
        yield from batches
        if ours and context.attemptNumber() == 1:
            raise RuntimeError("after its rows")

    return passed


def sink(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Stream files to the sink that publishes, one file per micro-batch.

    This Spark driver is killed between the commit of the sink and that of Spark.
    """
    spark.dataSource.register(Killing)
    query = (
        stream(spark, orders["source"])
        .writeStream.format("pulljobs")
        .options(**orders["options"], queryName=str(orders["die_after"]))
        .option("checkpointLocation", orders["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def stream(spark: SparkSession, source: str) -> DataFrame:
    return spark.readStream.schema("payload string").option("maxFilesPerTrigger", 1).json(source)


class Killing(DefaultSource):
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        writer = super().streamWriter(schema, overwrite)
        assert isinstance(writer, SinkWriter)
        return KillingWriter(writer._request, int(self.options["queryName"]))


class KillingWriter(SinkWriter):
    def __init__(self, request: Any, die_after: int) -> None:
        super().__init__(request)
        self._die_after = die_after

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        super().commit(messages, batchId)
        if batchId == self._die_after:
            os.killpg(int(os.environ["DRIVER_GROUP"]), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    os.environ["DRIVER_GROUP"] = str(os.getpgid(0))
    main(json.loads(sys.argv[1]))
