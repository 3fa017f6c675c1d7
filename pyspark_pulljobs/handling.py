"""Running a function over the jobs of a stream, in Spark's tasks.

The function takes a pandas DataFrame, or an Arrow table, with the columns of the stream, and
returns nothing, or a frame or table that tells of single jobs: `job_id`, and

    outcome   deliver, retry or reject (retry, where there is no such column or value)
    error     why, in words
    after     seconds to the retry; none: the consumer's own delay
    result    JSON, kept with a job that is delivered

What it does not name is delivered. A job of which something can't be written, such as a result that
is no JSON or too long, is tried again by itself. If it raises `pulljobs.errors.Retry`, `Discard` or
anything else, that goes for every job that it was given, as in a worker. Frames are of no more rows
than `spark.sql.execution.arrow.maxRecordsPerBatch`, and of one batch.
"""

import json
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Final, NoReturn
from uuid import UUID

import pyarrow as pa

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.errors import ConfigurationError, Discard, LakeError, Retry
from pyspark_pulljobs import settling

PANDAS: Final = "pandas"
ARROW: Final = "arrow"
FORMS: Final = (PANDAS, ARROW)
COUNTS: Final = "given long, settled long"
_COUNTS: Final = pa.schema([("given", pa.int64()), ("settled", pa.int64())])

Handler = Callable[[Any], Any]


def resolve(name: str) -> Handler:
    """The function `module:function`; ConfigurationError if it can't be had."""
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ConfigurationError(f"{name!r} is not module:function.")
    try:
        found = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"There is no handler {name!r}: {error}.") from error
    if not callable(found):
        raise ConfigurationError(f"{name!r} is no function.")
    return found  # type: ignore[no-any-return]  # whatever it takes


@dataclass(frozen=True, slots=True)
class Handling:
    """For `mapInArrow`: handles, writes what failed, and tells how many there were."""

    dsn: str
    handler: str
    form: str
    max_result_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = resolve(self.handler)
        for batch in batches:
            if batch.num_rows:
                settled = settling.settle(self.dsn, self._handled(function, batch))
                counts = [[batch.num_rows], [len(settled)]]
                yield pa.RecordBatch.from_arrays(list(map(pa.array, counts)), schema=_COUNTS)

    def _handled(self, function: Handler, batch: pa.RecordBatch) -> list[Settlement]:
        ids, leases = (batch.column(name).to_pylist() for name in ("job_id", "lease_token"))
        jobs = dict(zip(ids, leases, strict=True))
        held = [Held(job_id, UUID(lease)) for job_id, lease in jobs.items()]
        try:
            said = function(self._shown(batch))
        except Discard as refusal:
            return [outcomes.reject(one, settling.text_of(refusal.reason)) for one in held]
        except Retry as wish:
            error = settling.text_of(wish.reason)
            return [outcomes.retry(one, error, after=wish.after) for one in held]
        except Exception:
            error = settling.text_of(traceback.format_exc())
            return [outcomes.retry(one, error) for one in held]
        verdicts = _verdicts(said)
        _refuse_repeated(verdicts)
        return [self._settlement(jobs, verdict) for verdict in verdicts]

    def _settlement(self, jobs: Mapping[int, str], verdict: Mapping[str, Any]) -> Settlement:
        job_id = int(verdict["job_id"])
        if job_id not in jobs:
            raise LakeError(f"The handler was not given job {job_id}, and can't settle it.")
        held = Held(job_id, UUID(jobs[job_id]))
        try:
            return _said(held, verdict, self.max_result_bytes)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return settling.unwritable(held, error)

    def _shown(self, batch: pa.RecordBatch) -> Any:
        table = pa.Table.from_batches([batch])
        return table.to_pandas() if self.form == PANDAS else table


def _verdicts(said: Any) -> list[dict[str, Any]]:
    """Rows of what a handler returned, in which what is missing is None."""
    if said is None:
        return []
    if not isinstance(said, pa.Table | pa.RecordBatch):
        if not hasattr(said, "to_dict"):
            raise LakeError(
                f"A handler must return nothing, a DataFrame or a table, not {type(said).__name__}."
            )
        said = pa.Table.from_pandas(said, preserve_index=False)
    if said.num_rows and "job_id" not in said.schema.names:
        raise LakeError("What a handler returns must have a column job_id.")
    return list(said.to_pylist())


def _refuse_repeated(verdicts: Sequence[Mapping[str, Any]]) -> None:
    told = Counter(int(verdict["job_id"]) for verdict in verdicts)
    for job_id, times in told.most_common(1):
        if times > 1:
            raise LakeError(f"The handler names job {job_id} {times} times: name it once.")


def _said(held: Held, verdict: Mapping[str, Any], max_result_bytes: int) -> Settlement:
    outcome = verdict.get("outcome") or "retry"
    error = settling.text_of(str(verdict.get("error") or outcome))
    if outcome == "deliver":
        return outcomes.deliver(held, _result(verdict.get("result"), max_result_bytes))
    if outcome == "reject":
        return outcomes.reject(held, error)
    if outcome != "retry":
        raise LakeError(f"Outcome {outcome!r} is none of deliver, retry and reject.")
    after = verdict.get("after")
    return outcomes.retry(held, error, after=None if after is None else timedelta(seconds=after))


def _result(text: Any, limit: int) -> str | None:
    """As it is stored; TypeError or ValueError for what is no JSON, or too long."""
    if text is None:
        return None
    json.loads(text, parse_constant=_refused)
    return outcomes.result_text(text, limit)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"the result is no JSON: {constant}")
