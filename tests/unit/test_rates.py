"""Rates as text, and the arithmetic of a claim's allowance."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from pulljobs.engine.claiming import limits
from pulljobs.engine.claiming.limits import Allowance, Bucket
from pulljobs.engine.claiming.rows import Claimed, HeldJob, NotYet, Refusal
from pulljobs.engine.low_water_marks import Snapshot
from pulljobs.rates import check_limit, parse_rate

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "per_second"),
    [
        ("10/s", 10),
        ("120/m", 2),
        ("1800/h", 0.5),
        ("86400/d", 1),
        ("1000000/s", 1_000_000),
        ("60000000/m", 1_000_000),
        ("", None),
    ],
)
def test_a_rate_is_a_number_of_jobs_a_second(text: str, per_second: float | None) -> None:
    assert parse_rate(text) == per_second


@pytest.mark.parametrize(
    "text",
    ["10", "/s", "10/", "10/w", "-10/s", "+10/s", "1.5/s", "10 / s", " 10/s", "1e3/s", "10/15m"]
    + ["10/S", "١٠/s", "10/s\n", "1" * 13 + "/d", "ten/s"],
)
def test_other_texts_are_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="such as 10/s, 100/m, 5000/h or 1/d"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["0/s", "000/d"])
def test_a_rate_of_zero_is_refused_with_the_advice_to_pause(text: str) -> None:
    with pytest.raises(ValueError, match="to stop claims, pause"):
        parse_rate(text)


@pytest.mark.parametrize("text", ["1000001/s", "60000001/m", "999999999999/h"])
def test_a_rate_above_a_million_a_second_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="above 1,000,000 a second: leave the rate empty"):
        parse_rate(text)


@pytest.mark.parametrize(
    ("rate", "burst"), [("1/s", 1), ("1/d", 1_000_000), ("1/s", None), ("", None)]
)
def test_a_burst_goes_with_a_rate(rate: str, burst: int | None) -> None:
    check_limit(rate, burst, window=False)


@pytest.mark.parametrize(
    ("rate", "burst", "problem"),
    [
        ("", 1, "needs a rate"),
        ("1/s", 0, "from 1 to 1,000,000, not 0"),
        ("1/s", -1, "not -1"),
        ("1/s", 1_000_001, "not 1,000,001"),
        ("1/x", 1, "is no rate"),
    ],
)
def test_a_burst_without_a_rate_or_out_of_bounds_is_refused(
    rate: str, burst: int, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        check_limit(rate, burst, window=False)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the monotonic clock of claims. The only element of the list is its time."""
    time = [100.0]
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


def bucket(tokens: float, per_second: float = 10, to_window: float | None = None) -> Bucket:
    length = None if to_window is None else 60.0
    return Bucket(1, 0, tokens, per_second, 20.0, length, to_window, NOW, False, 100.0)


def allowance(room: int | None, *tokens: float | None) -> Allowance:
    return Allowance(room, tuple(bucket(each) for each in tokens if each is not None))


@pytest.mark.parametrize(
    ("room", "tokens", "jobs"),
    [
        (None, 3.7, 3),
        (2, 3.7, 2),
        (5, 3.7, 3),
        (4, None, 4),
        (0, 3.7, 0),
        (4, 0.99, 0),
        (4, -0.5, 0),
    ],
)
def test_a_claim_may_take_what_the_tightest_limit_allows(
    room: int | None, tokens: float | None, jobs: int
) -> None:
    assert allowance(room, tokens).most(1) == jobs
    assert allowance(room, tokens, 50.0).most(1) == jobs


@pytest.mark.parametrize(
    ("tokens", "job_cost", "jobs"), [(9.0, 3.0, 3), (2.0, 3.0, 1), (0.9, 3.0, 0), (7.0, 1.5, 4)]
)
def test_a_claim_takes_a_job_if_it_may_be_cheaper_than_the_last_ones(
    tokens: float, job_cost: float, jobs: int
) -> None:
    assert allowance(None, tokens).most(job_cost) == jobs


def claimed(jobs: int) -> Claimed:
    held = [HeldJob(number, number, 0, 0, 1) for number in range(jobs)]
    later = timedelta(hours=1)
    return Claimed(NOW, Snapshot(1, frozenset()), 1, None, held, {}, False, later, None, more=False)


@pytest.mark.parametrize(
    ("room", "tokens", "next_cost", "refusal"),
    [
        (None, 0.5, 1, Refusal.RATE_LIMITED),
        (None, 3.5, 4, Refusal.RATE_LIMITED),
        (None, 3.5, 1, None),
        (0, 30.0, 1, Refusal.MAX_IN_FLIGHT),
        (0, 0.5, 1, Refusal.MAX_IN_FLIGHT),
        (2, 0.5, 1, Refusal.RATE_LIMITED),
        (0, None, 1, Refusal.MAX_IN_FLIGHT),
    ],
)
def test_a_cut_claim_names_the_limit_that_cut_it(
    room: int | None,
    tokens: float | None,
    next_cost: float,
    refusal: Refusal | None,
    clock: list[float],
) -> None:
    result = allowance(room, tokens).name_limit(claimed(3), next_cost)
    assert result.refusal is refusal
    assert result.more is (refusal is None)


def test_a_limited_claim_knows_when_the_next_token_comes(clock: list[float]) -> None:
    limited = allowance(None, 0.5).name_limit(claimed(3), 1)
    assert limited.next_due == timedelta(seconds=0.05) + limits.ROUNDING
    clock[0] += 0.02  # The statement that claimed took so long.
    limited = allowance(None, 0.5).name_limit(claimed(3), 1)
    assert limited.next_due is not None
    assert limited.next_due.total_seconds() == pytest.approx(0.03, abs=1e-4)
    clock[0] += 5
    assert allowance(None, 0.5).refusal == NotYet(Refusal.RATE_LIMITED, limits.ROUNDING)


def test_a_job_waits_for_its_cost_but_not_for_more_than_the_bucket_takes(
    clock: list[float],
) -> None:
    assert bucket(3.5).time_to(4) == timedelta(seconds=0.05) + limits.ROUNDING
    assert bucket(19.5).time_to(100) == timedelta(seconds=0.05) + limits.ROUNDING
    assert bucket(4).time_to(4) == timedelta()


def test_a_used_up_window_allows_the_next_job_when_the_next_window_begins(
    clock: list[float],
) -> None:
    clock[0] += 0.5
    assert bucket(2.0, to_window=7).time_to(3) == timedelta(seconds=6.5) + limits.ROUNDING
    assert bucket(3.0, to_window=7).time_to(3) == timedelta()


@pytest.mark.parametrize(
    ("rate", "burst", "problem"),
    [("", None, "A window needs a rate"), ("5/m", 5, "A window has no burst, which is 5")],
)
def test_a_window_without_a_rate_or_with_a_burst_is_refused(
    rate: str, burst: int | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        check_limit(rate, burst, window=True)
