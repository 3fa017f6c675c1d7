"""Handlers of `pulljobs lake consume`."""

import os
from typing import Any

import pandas as pd
import pyarrow as pa

from pulljobs.errors import Discard


def sort_out(frame: pd.DataFrame) -> pd.DataFrame:
    """Payloads say what becomes of their jobs."""
    said = frame["payload"].str.decode("utf-8")
    told = frame.assign(outcome=said, error="as told", after=3600.0)
    return told[said != "deliver"][["job_id", "outcome", "error", "after"]]


def is_fine(table: pa.Table) -> None:
    assert table.num_rows


def gives_up(table: Any) -> None:
    raise Discard("nobody wants it")


def raises(table: Any) -> None:
    raise ValueError("not today")


def tells_payloads(frame: pd.DataFrame) -> pd.DataFrame:
    """Payloads are their results."""
    result = frame["payload"].str.decode("utf-8")
    return frame.assign(outcome="deliver", result=result)[["job_id", "outcome", "result"]]


def waits_payloads(frame: pd.DataFrame) -> pd.DataFrame:
    """Payloads are seconds."""
    return frame.assign(after=frame["payload"].astype(float))[["job_id", "after"]]


def repeats(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table]).select(["job_id"])


class PastAllError(BaseException):
    """What no handler's exceptions are caught by."""


def fails_its_query(table: Any) -> None:
    raise PastAllError("no\0thing")


def crashes_its_worker(table: Any) -> None:
    os._exit(1)
