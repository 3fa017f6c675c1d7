"""Division of the rows of an export run among tasks, by ranges of ids.

Physical positions would not do, because rows move when a day gets its own partition. The bounds
come from a sample of the tables' blocks, so that even a run over all history needs no count.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db import connections, transaction

from pulljobs.lake import ledger
from pulljobs.lake.models import LakeRun
from pulljobs.storage.statements import run
from pyspark_pulljobs.writing import Slice

ROWS: Final = 250_000
"""Approximate rows of a slice. One statement reads it, and its snapshot holds back vacuum."""
MIN_ROWS: Final = 25_000
"""Estimated number of rows that each slice has at least, if there are several."""
SAMPLED_BLOCKS: Final = 400
"""Number of blocks of each table that the sample reads."""
LAST_ID: Final = 2**63 - 1


class Sample(NamedTuple):
    """Sorted sample of the ids of an export run's rows in one table, and their estimated number."""

    ids: Sequence[int]
    rows: int

    def cuts(self, tasks: int) -> list[int]:
        """Return the ids at which slices of the rows begin, ascending from 0, and then `LAST_ID`.

        A slice goes from one bound to below the next. If the rows are enough, each of the parallel
        `tasks` gets the same number of slices.
        """
        count = max(min(tasks, self.rows // MIN_ROWS), 1)
        if self.rows > count * ROWS:
            count *= -(-self.rows // (count * ROWS))  # the same number for each task
        inner = {self.ids[len(self.ids) * number // count] for number in range(1, count)}
        return [0, *sorted(inner - {0}), LAST_ID]


def sample(using: str, lake_run: LakeRun) -> dict[str, Sample]:
    """Return a sample of the rows of the export run's window, by table of the lake."""
    [blocks] = run(using, "export_blocks", {})
    percents = [min(100.0, 100.0 * SAMPLED_BLOCKS / max(count, 1)) for count in blocks]
    params = {
        **_window(lake_run),
        "archive_percent": percents[0],
        "message_percent": percents[1],
    }
    [ids] = run(using, "export_sample", params)
    return {
        table: Sample(sample, int(len(sample) * 100 / percent))
        for table, sample, percent in zip(("archive", "messages"), ids, percents, strict=True)
    }


def plan(
    using: str, lake_run: LakeRun, samples: Mapping[str, Sample], tables: Sequence[str], tasks: int
) -> list[Slice]:
    """Divide the rows of the export run's window into slices, each for a task of Spark or a thread.

    `samples` are those of `sample`, by table. `tasks` is the number that work in parallel.
    """
    slices: list[Slice] = []
    for table in tables:
        cuts = samples[table].cuts(tasks)
        for low, high in zip(cuts, cuts[1:], strict=False):
            query = _query(using, lake_run, table, low, high)
            slices.append(Slice(len(slices), table, query))
    return slices


def has_rows(using: str, lake_run: LakeRun) -> bool:
    """Return True if a transaction of the export run's window wrote a row that is still there."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        # The planner would rather read everything than look into block ranges for nothing.
        cursor.execute("SET LOCAL enable_seqscan = off")
        [(has_row,)] = run(using, "export_any", _window(lake_run))
    return bool(has_row)


def count_rows(using: str, lake_run: LakeRun) -> dict[str, int]:
    """Return the number of rows of the export run's window, by table of the lake."""
    [(archive, messages)] = run(using, "export_count", _window(lake_run))
    return {"archive": archive, "messages": messages}


def _query(using: str, lake_run: LakeRun, table: str, low: int, high: int) -> str:
    params: dict[str, Any] = {**_window(lake_run), "low_id": low, "high_id": high}
    if table == "messages":
        params |= {
            "payload_cap": lake_run.options.get("payload_cap"),
            "channel_ids": lake_run.options.get("channel_ids"),
        }
    return ledger.inline_parameters(using, f"export_{table}", params)


def _window(lake_run: LakeRun) -> dict[str, int]:
    return {"low_xid": lake_run.low_xid, "high_xid": lake_run.high_xid}
