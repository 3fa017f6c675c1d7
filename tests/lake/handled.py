"""Handlers of `pulljobs lake consume`."""

import os
import time
from datetime import timedelta
from typing import Any

import pandas as pd
import pyarrow as pa

from pulljobs.errors import Discard, Snooze


def sort_out(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the outcome that each payload names. "deliver" gives no row, with the same effect."""
    outcome = frame["payload"].str.decode("utf-8")
    settled = frame.assign(outcome=outcome, error="as asked", after=3600.0)
    return settled[outcome != "deliver"][["job_id", "outcome", "error", "after"]]


def is_fine(table: pa.Table) -> None:
    assert table.num_rows


def gives_up(table: Any) -> None:
    raise Discard("no longer wanted")


def snoozes(table: Any) -> None:
    raise Snooze(timedelta(hours=1), "not before noon")


def raises(table: Any) -> None:
    raise ValueError("not today")


def returns_payloads(frame: pd.DataFrame) -> pd.DataFrame:
    """Deliver each job with its payload as its result."""
    result = frame["payload"].str.decode("utf-8")
    return frame.assign(outcome="deliver", result=result)[["job_id", "outcome", "result"]]


def waits_payloads(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each job with its payload as the delay of a retry, in seconds."""
    return frame.assign(after=frame["payload"].astype(float))[["job_id", "after"]]


def repeats(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table]).select(["job_id"])


class PastAllError(BaseException):
    """Error that an `except Exception` around a handler does not catch."""


def fails_its_query(table: Any) -> None:
    raise PastAllError("no\0thing")


def never_ends(table: Any) -> None:
    time.sleep(3_600)


def crashes_its_worker(table: Any) -> None:
    os._exit(1)
