"""Reads of Parquet files by Python: batches are bounded by rows and by bytes."""

from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from pyspark_pulljobs import lake_files
from pyspark_pulljobs.schemas import DAY

DAYS = [date(2026, 11, 27)]


@pytest.mark.parametrize(
    ("most_bytes", "most_rows"),
    [(10_000_000, 7), (3_500, 3), (1, 1)],
)
def test_a_batch_is_bounded_by_rows_and_by_bytes(
    most_bytes: int, most_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bound of bytes counts only the columns that are read: here 1,000 bytes of each row."""
    monkeypatch.setattr(lake_files, "BATCH_BYTES", most_bytes)
    errors = [f"{number:01000}" for number in range(20)]
    rows = pa.table({"error": errors, "payload": ["x" * 50_000] * 20})
    parquet.write_table(rows, tmp_path / "part.parquet", compression="zstd")
    schema = pa.schema([("error", pa.string()), DAY])
    named = pa.RecordBatch.from_pydict({"path": ["part.parquet"], "day": DAYS})
    batches = list(lake_files.read_files(str(tmp_path), schema, [named], 7))
    assert max(map(len, batches)) == most_rows
    assert [error for batch in batches for error in batch["error"].to_pylist()] == errors
