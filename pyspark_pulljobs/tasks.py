"""Calls of a Python function in Spark's tasks, with Spark Connect too, which has no RDDs."""

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
    """Divide `parts` among `tasks` tasks of Spark, and return the results of all.

    Each task calls the function with some of them, for any number of results. The
    function, the parts and the results are pickled.
    """
    numbers = spark.range(0, len(parts), 1, tasks)
    rows = numbers.mapInArrow(_Call(function, parts), "result binary").collect()
    return [pickle.loads(row.result) for row in rows]


@dataclass(frozen=True, slots=True)
class _Call:
    """Function for `mapInArrow` that gets indexes of `parts`, and calls `function` with the parts.

    It yields each result pickled, as a batch of one row.
    """

    function: Callable[[Iterable[Any]], Iterable[Any]]
    parts: Sequence[Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        numbers = (number for batch in batches for number in batch["id"].to_pylist())
        for result in self.function(self.parts[number] for number in numbers):
            yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(result)]}, RESULT)
