"""Calls of a function in Spark's tasks, also of a server that has no RDDs for its clients."""

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Part = TypeVar("Part")
Result = TypeVar("Result")
RESULT: Final = pa.schema([("result", pa.binary())])


def call_in_tasks(
    spark: "SparkSession",
    function: Callable[[Iterable[Part]], Iterable[Result]],
    parts: Sequence[Part],
    tasks: int,
) -> list[Result]:
    """Divide the parts among tasks, call the function in each, and return all results."""
    numbers = spark.range(0, len(parts), 1, tasks)
    rows = numbers.mapInArrow(_Call(function, parts), "result binary").collect()
    return [pickle.loads(row.result) for row in rows]


@dataclass(frozen=True, slots=True)
class _Call:
    """Function for `mapInArrow`, which gets the numbers of parts."""

    function: Callable[[Iterable[Any]], Iterable[Any]]
    parts: Sequence[Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch["id"].to_pylist())
        for result in self.function(self.parts[number] for number in numbers):
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]}, RESULT)
