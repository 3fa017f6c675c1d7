"""Age of the oldest settlement that the lake lacks, whatever the gaps between transactions."""

from datetime import timedelta

import pytest

from pulljobs.lake import ledger
from pulljobs.models import ArchivedJob
from pulljobs.states import State
from pulljobs.storage.statements import run
from tests.factories import USING, JobFactory
from tests.sessions import query

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

NOW = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint"


def settled(hours_ago: int, xid: int) -> None:
    JobFactory.create(state=State.DELIVERED)
    query(
        "UPDATE pulljobs_archived_job SET settled_xid = %s,"
        " settled_at = now() - make_interval(hours => %s) WHERE id = %s",
        [xid, hours_ago, ArchivedJob.objects.latest("id").id],
    )


def hours(high_xid: int) -> int | None:
    rows: list[tuple[timedelta]] = run(USING, "lake_lag", {"high_xid": high_xid})
    return round(rows[0][0] / timedelta(hours=1)) if rows else None


@pytest.mark.parametrize("gap", [0, 99, 100, 101, 30_000])
def test_it_is_that_of_the_first_transactions_behind_the_last_window(gap: int) -> None:
    """The lag is the age of the first settlement after the last export, whatever the gap of ids."""
    [(last,)] = query(NOW)
    high = 10
    settled(9, high - 1)
    settled(4, high + min(gap, last - high - 1))
    settled(2, last - 1)
    assert hours(high) == 4


def test_within_a_window_it_is_the_oldest() -> None:
    """The lag is the age of the oldest settlement from the given transaction id on."""
    settled(3, 20)
    settled(5, 21)
    assert hours(20) == 5
    assert hours(21) == 5
    assert hours(22) is None


def test_a_lake_without_a_window_lacks_all() -> None:
    """Before the first export run, the lag is the age of the oldest settlement."""
    assert hours(0) is None
    settled(7, 40)
    settled(6, 41)
    assert hours(0) == 7


def test_a_lake_that_was_moved_is_known_up_to_what_it_lacks() -> None:
    ledger.record_rebase(USING, "moved", ledger.Horizon(20, 1, 20), newest=1)
    settled(6, 19)
    [(now,)] = query("SELECT clock_timestamp()")
    assert ledger.read_known_until(USING, "moved") >= now
    settled(4, 21)
    assert ledger.read_known_until(USING, "moved") == ArchivedJob.objects.latest("id").settled_at


def test_a_lake_is_known_up_to_the_oldest_that_it_lacks_however_late_its_number() -> None:
    """A lake is complete up to the oldest settlement that it lacks, whatever its transaction id."""
    [(last,)] = query(NOW)
    ledger.record_rebase(USING, "held back", ledger.Horizon(20, 1, 20), newest=1)
    settled(1, 20)
    settled(4, last - 1)
    oldest = ArchivedJob.objects.latest("id").settled_at
    settled(2, last - 1)
    assert ledger.read_known_until(USING, "held back") == oldest


def test_a_lake_without_a_window_is_known_up_to_the_first_settlement() -> None:
    settled(3, 40)
    assert ledger.read_known_until(USING, "nowhere") == ArchivedJob.objects.latest("id").settled_at
