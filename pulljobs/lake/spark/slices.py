"""How the rows of a run are shared out to tasks: by ranges of ids, which never change.

(Places in the table do: rows move when a day gets a partition of its own.) Where to cut is told
by a sample of the tables' blocks, so that a run of all history costs no count of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from django.db import connections, transaction

from pulljobs.lake import ledger
from pulljobs.lake.models import LakeRun
from pulljobs.storage.statements import run
from pyspark_pulljobs.writing import Slice

ROWS: Final = 250_000
"""Of a slice, about: what one statement reads, whose snapshot holds back vacuum meanwhile."""
FEWEST: Final = 25_000
"""Nobody else is asked to help with fewer."""
SAMPLED_BLOCKS: Final = 400
LAST_ID: Final = 2**63 - 1


class Sample(NamedTuple):
    """Of one table: some ids of the run, in order, and how many rows there may be in all."""

    ids: Sequence[int]
    rows: int

    def cuts(self, tasks: int) -> list[int]:
        """Bounds of slices, the ends included, for so many tasks at once."""
        count = max(min(tasks, self.rows // FEWEST), 1)
        if self.rows > count * ROWS:
            count *= -(-self.rows // (count * ROWS))  # as many for each task
        inner = {self.ids[len(self.ids) * number // count] for number in range(1, count)}
        return [0, *sorted(inner - {0}), LAST_ID]


def sampled(using: str, made: LakeRun) -> dict[str, Sample]:
    """By table of the lake."""
    [blocks] = run(using, "export_blocks", {})
    percents = [min(100.0, 100.0 * SAMPLED_BLOCKS / max(count, 1)) for count in blocks]
    params = {
        **_window(made),
        "archive_percent": percents[0],
        "message_percent": percents[1],
    }
    [ids] = run(using, "export_sample", params)
    return {
        table: Sample(found, int(len(found) * 100 / percent))
        for table, found, percent in zip(("archive", "messages"), ids, percents, strict=True)
    }


def planned(
    using: str, made: LakeRun, samples: Mapping[str, Sample], tables: Sequence[str], tasks: int
) -> list[Slice]:
    """Every row of the run's window in one slice, of these tables of the lake."""
    slices: list[Slice] = []
    for table in tables:
        cuts = samples[table].cuts(tasks)
        for low, high in zip(cuts, cuts[1:], strict=False):
            query = _query(using, made, table, low, high)
            slices.append(Slice(len(slices), table, query))
    return slices


def is_any(using: str, made: LakeRun) -> bool:
    """Whether the window holds a row."""
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        # The planner would rather read everything than look into block ranges for nothing.
        cursor.execute("SET LOCAL enable_seqscan = off")
        [(found,)] = run(using, "export_any", _window(made))
    return bool(found)


def counted(using: str, made: LakeRun) -> dict[str, int]:
    """Rows of the window, by table of the lake."""
    [(archive, messages)] = run(using, "export_count", _window(made))
    return {"archive": archive, "messages": messages}


def _query(using: str, made: LakeRun, table: str, low: int, high: int) -> str:
    params: dict[str, Any] = {**_window(made), "low_id": low, "high_id": high}
    if table == "messages":
        params |= {
            "payload_cap": made.options.get("payload_cap"),
            "channel_ids": made.options.get("channel_ids"),
        }
    return ledger.bound(using, f"export_{table}", params)


def _window(made: LakeRun) -> dict[str, int]:
    return {"low_xid": made.low_xid, "high_xid": made.high_xid}
