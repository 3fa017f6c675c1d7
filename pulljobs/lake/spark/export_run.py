"""Steps of an export run, written so that a crash after any of them loses no row."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from django.db import connections

from pulljobs.conf import settings
from pulljobs.engine.telemetry import emit
from pulljobs.errors import LakeError
from pulljobs.lake import ledger, replicas
from pulljobs.lake.lock import Owner
from pulljobs.lake.models import LakeRun
from pulljobs.lake.spark import failures, files, progress, session, slices
from pulljobs.lake.spark.tables import Table
from pulljobs.lake.telemetry import LakeExported
from pulljobs.models import Channel, Consumer
from pulljobs.progress import count_items, show_progress
from pyspark_pulljobs import tasks, writing
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.writing import ExportedFile, ExportParameters, Names, Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sessions = Callable[..., AbstractContextManager["SparkSession"]]
"""Function that opens a Spark session. It takes the number of `rows` to process as a hint."""


@dataclass(frozen=True, slots=True)
class ExportRun:
    """Writer of export runs to the lake at `location`, by the holder of the lake's lock."""

    using: str
    location: str
    reader: str
    """Way to read rows from PostgreSQL: "adbc" or "copy"."""
    owner: Owner
    """Holder of the lock of the lake."""
    sessions: Sessions
    always_spark: bool
    """True to export in Spark's tasks even if the rows are few."""

    def end(self, lake_run: LakeRun, *, is_interrupted: bool = False) -> LakeRun:
        """Write what is missing of the export run `lake_run`, mark it as done, and return its row.

        A table whose Delta log names the run is complete. The others are written. With
        `is_interrupted`, files that an earlier process wrote for these are removed first.
        """
        known = [table for table in map(self._table, TABLES) if table.last_run() >= lake_run.pk]
        left = [table for table in map(self._table, TABLES) if table.name not in _names_of(known)]
        if is_interrupted:
            files.clean(left, lake_run.pk)
        wrote = self._written(lake_run, _names_of(left))
        for table in left:
            self._publish(table, lake_run.pk, [file for file in wrote if file.table == table.name])
        rows, size = files.sum_files(wrote, known, lake_run.pk)
        self.owner.check()
        ledger.end_run(self.using, lake_run, rows, size)
        lake_run.refresh_from_db(using=self.using)
        emit(LakeExported(rows, size))
        return lake_run

    def _table(self, name: str) -> Table:
        return Table(self.location, name)

    def _written(self, lake_run: LakeRun, names: Sequence[str]) -> list[ExportedFile]:
        """Write the rows of these tables, and compare their number with PostgreSQL's.

        Raise LakeError if the numbers differ.
        """
        if not names:
            return []
        with ThreadPoolExecutor(1) as aside:
            expected = aside.submit(_counted, self.using, lake_run)
            wrote = self._write(lake_run, names)
        for name in names:
            rows, there = sum(file.rows for file in wrote if file.table == name), expected.result()
            if rows != there[name]:
                raise LakeError(
                    f"Run {lake_run.pk} wrote {rows:,} rows of {name}, PostgreSQL has "
                    f"{there[name]:,}: nothing was exported, run it again."
                )
        return wrote

    def _write(self, lake_run: LakeRun, names: Sequence[str]) -> list[ExportedFile]:
        """Write the rows of these tables: few in this process, many in Spark's tasks."""
        samples = slices.sample(self.using, lake_run)
        rows = sum(samples[name].rows for name in names)
        parameters = ExportParameters(
            session.dsn(replicas.choose_source(self.using)),
            self.reader,
            self.location,
            lake_run.pk,
            _registry(self.using),
        )
        plan = partial(slices.plan, self.using, lake_run, samples, names)
        if rows <= session.ONE_PROCESS_ROWS and not self.always_spark:
            return _written_here(parameters, plan(replicas.bound_connections()))
        with self.sessions() as spark, progress.reporting(spark, "export", rows):
            planned = plan(replicas.bound_connections(session.count_cores(spark)))
            write = partial(writing.write, parameters)
            count = min(len(planned), settings().LAKE_CONNECTIONS or len(planned))
            return tasks.call_in_tasks(spark, write, planned, count)

    def _publish(self, table: Table, run: int, wrote: Sequence[ExportedFile]) -> None:
        if wrote:
            self.owner.check()
            table.commit(run, wrote)


@failures.raising_connection_errors()
def _written_here(parameters: ExportParameters, planned: Sequence[Slice]) -> list[ExportedFile]:
    """Write the slices of rows in threads: Arrow and the database driver release the GIL."""

    def write(piece: Slice) -> list[ExportedFile]:
        return list(writing.write(parameters, [piece]))

    pool = ThreadPoolExecutor(replicas.bound_connections())
    with pool, show_progress("export", "slices", len(planned)) as shown:
        written = count_items(pool.map(write, planned), shown)
        return [file for files in written for file in files]


def _counted(using: str, lake_run: LakeRun) -> dict[str, int]:
    try:
        return slices.count_rows(using, lake_run)
    finally:
        connections.close_all()  # this thread's


def _names_of(some: Iterable[Table]) -> list[str]:
    return [table.name for table in some]


def _registry(using: str) -> dict[str, Names]:
    """Return the names that the export writes next to ids: by table of the lake, then by id.

    For the archive, an id is that of a consumer, and its names are those of channel and consumer.
    Soft-deleted rows are included.
    """
    channels = Channel.objects.using(using).values_list("pk", "name")
    consumers = Consumer.objects.using(using).values_list("pk", "channel__name", "name")
    return {
        "archive": {pk: (channel, name) for pk, channel, name in consumers},
        "messages": {pk: (name,) for pk, name in channels},
    }
