"""Handlers of the jobs of a stream, which run in Spark's tasks.

A handler takes a pandas DataFrame or an Arrow table with the columns of the stream. It returns
None, or a DataFrame or table with the outcomes of single jobs: `job_id`, and

    outcome   deliver, retry or reject (default: retry)
    error     reason, as text
    after     seconds until the retry (default: the consumer's delay)
    result    JSON text, stored with a delivered job

Jobs that it does not name are delivered. A job whose outcome can't be written, for example because
the result is invalid JSON or too long, is retried alone. If the handler raises
`pulljobs.errors.Retry`, `Snooze`, `Discard` or another exception, all jobs of the call get the
outcome that a worker gives for it. A call gets jobs of one batch, and at most as many as
`spark.sql.execution.arrow.maxRecordsPerBatch`.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Final, NoReturn
from uuid import UUID

import pyarrow as pa

from pulljobs.engine import outcomes
from pulljobs.engine.error_texts import format_error, format_reason
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.errors import ConfigurationError, Discard, LakeError, Retry, Snooze
from pyspark_pulljobs import settling

PANDAS: Final = "pandas"
ARROW: Final = "arrow"
FORMS: Final = (PANDAS, ARROW)
"""Types of the argument of a handler."""
COUNTS: Final = "given long, settled long"
"""Columns that the query of a stream gets from `Handling`, for Spark."""
_COUNTS: Final = pa.schema([("given", pa.int64()), ("settled", pa.int64())])

Handler = Callable[[Any], Any]


def resolve(name: str) -> Handler:
    """Import the handler `module:function`, or raise ConfigurationError if that fails."""
    module, colon, function = name.partition(":")
    if not (module and colon and function) or module.startswith("."):
        raise ConfigurationError(f"Handler {name!r} must have the form module:function.")
    try:
        handler = getattr(import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"There is no handler {name!r}: {error}.") from error
    if not callable(handler):
        raise ConfigurationError(f"Handler {name!r} is not callable: name a function.")
    return handler  # type: ignore[no-any-return]  # Its parameters are not known here.


@dataclass(frozen=True, slots=True)
class Handling:
    """Function for `mapInArrow` that runs a handler and writes the outcomes that it returns."""

    dsn: str
    handler: str
    form: str
    max_result_bytes: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the handler for each batch of rows. Yield counts of its jobs and written outcomes."""
        function = resolve(self.handler)
        for batch in batches:
            if batch.num_rows:
                settled = settling.settle(self.dsn, self._run_handler(function, batch))
                counts = [[batch.num_rows], [len(settled)]]
                yield pa.RecordBatch.from_arrays(list(map(pa.array, counts)), schema=_COUNTS)

    def _run_handler(self, function: Handler, batch: pa.RecordBatch) -> list[Settlement]:
        ids, lease_tokens = (batch.column(name).to_pylist() for name in ("job_id", "lease_token"))
        held = {
            job_id: Held(job_id, UUID(lease_token))
            for job_id, lease_token in zip(ids, lease_tokens, strict=True)
        }
        try:
            returned = function(self._to_argument(batch))
        except Exception as exception:
            return _settle_raised(held.values(), exception)
        rows = _read_outcomes(returned)
        _refuse_repeated_jobs(rows)
        return [self._settlement(held, row) for row in rows]

    def _settlement(self, held: Mapping[int, Held], row: Mapping[str, Any]) -> Settlement:
        job_id = _read_job_id(row)
        if job_id not in held:
            raise LakeError(
                f"The handler names job {job_id}, which it was not given: name only given jobs."
            )
        try:
            return _to_settlement(held[job_id], row, self.max_result_bytes)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return settling.retry_unwritable(held[job_id], error)

    def _to_argument(self, batch: pa.RecordBatch) -> Any:
        table = pa.Table.from_batches([batch])
        return table.to_pandas() if self.form == PANDAS else table


def _settle_raised(held: Iterable[Held], raised: Exception) -> list[Settlement]:
    """Return the outcomes that a worker gives jobs whose handler raised this exception."""
    if not isinstance(raised, Discard | Snooze | Retry):
        error = settling.to_error_text(format_error(raised))
        return [outcomes.retry(job, error) for job in held]
    error = settling.to_error_text(format_reason(raised))
    if isinstance(raised, Discard):
        return [outcomes.reject(job, error) for job in held]
    if isinstance(raised, Snooze):
        after = raised.after
        return [outcomes.release(job, after=after, started=True, error=error) for job in held]
    return [outcomes.retry(job, error, after=raised.after) for job in held]


def _read_outcomes(returned: Any) -> list[dict[str, Any]]:
    """Return the rows of the handler's result as dictionaries, with None for missing values.

    A result of None has no rows. Raise LakeError if it is no table, or has rows but no `job_id`.
    """
    if returned is None:
        return []
    if not isinstance(returned, pa.Table | pa.RecordBatch):
        if not hasattr(returned, "to_dict"):
            kind = type(returned).__name__
            raise LakeError(f"A handler must return None, a DataFrame or a table, not {kind}.")
        returned = pa.Table.from_pandas(returned, preserve_index=False)
    if returned.num_rows and "job_id" not in returned.schema.names:
        raise LakeError("The table that the handler returned has no column job_id: add it.")
    return list(returned.to_pylist())


def _read_job_id(row: Mapping[str, Any]) -> int:
    """Return the job id of a row, or raise LakeError if it is NULL or a float, which rounds ids."""
    job_id = row["job_id"]
    if job_id is None or isinstance(job_id, float):
        raise LakeError(
            f"The handler names job {job_id}, but ids are whole numbers, which a float rounds: "
            "return the column job_id with its type int64 and without NULLs."
        )
    return int(job_id)


def _refuse_repeated_jobs(rows: Sequence[Mapping[str, Any]]) -> None:
    job_ids = Counter(map(_read_job_id, rows))
    for job_id, times in job_ids.most_common(1):
        if times > 1:
            raise LakeError(f"The handler names job {job_id} {times} times: name it once.")


def _to_settlement(held: Held, row: Mapping[str, Any], max_result_bytes: int) -> Settlement:
    outcome = row.get("outcome") or "retry"
    error = settling.to_error_text(str(row.get("error") or outcome))
    if outcome == "deliver":
        return outcomes.deliver(held, _check_result(row.get("result"), max_result_bytes))
    if outcome == "reject":
        return outcomes.reject(held, error)
    if outcome != "retry":
        raise LakeError(f"The outcome must be deliver, retry or reject, not {outcome!r}.")
    after = row.get("after")
    return outcomes.retry(held, error, after=None if after is None else timedelta(seconds=after))


def _check_result(text: Any, limit: int) -> str | None:
    """Return the JSON text of a result as it is stored, or None if there is none.

    Raise TypeError or ValueError if it is no JSON or too long.
    """
    if text is None:
        return None
    json.loads(text, parse_constant=_refuse_constant)
    return outcomes.result_text(text, limit)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"the result is no JSON: it has {constant}")
