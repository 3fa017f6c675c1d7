"""Rates as text, and the arithmetic of a claim's allowance."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from pulljobs.engine.claiming import limits
from pulljobs.engine.claiming.limits import Allowance, Bucket
from pulljobs.engine.claiming.rows import Claimed, HeldJob, NotYet, Refusal
from pulljobs.engine.low_water_marks import Snapshot
from pulljobs.rates import check_burst, parse_rate

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
    check_burst(rate, burst)


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
        check_burst(rate, burst)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The monotonic clock of a claim, whose only element is the time."""
    time = [100.0]
    monkeypatch.setattr(limits, "time", SimpleNamespace(monotonic=lambda: time[0]))
    return time


def bucket(tokens: float, per_second: float = 10) -> Bucket:
    return Bucket(tokens, per_second, 20.0, NOW, is_outdated=False, learned_at=100.0)


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
    assert Allowance(1, room, None if tokens is None else bucket(tokens)).jobs == jobs


def claimed(jobs: int) -> Claimed:
    held = [HeldJob(number, number, 0, 0, 1) for number in range(jobs)]
    later = timedelta(hours=1)
    return Claimed(NOW, Snapshot(1, frozenset()), 1, None, held, {}, False, later, None, more=True)


@pytest.mark.parametrize(
    ("room", "tokens", "took", "refusal"),
    [
        (None, 3.5, 3, Refusal.RATE_LIMITED),
        (None, 3.5, 2, None),
        (None, 30.0, 10, None),
        (3, 30.0, 3, Refusal.MAX_IN_FLIGHT),
        (3, 3.5, 3, Refusal.MAX_IN_FLIGHT),
        (5, 3.5, 3, Refusal.RATE_LIMITED),
        (0, 0.5, 0, Refusal.MAX_IN_FLIGHT),
    ],
)
def test_a_cut_claim_names_the_limit_that_cut_it(
    room: int | None, tokens: float, took: int, refusal: Refusal | None, clock: list[float]
) -> None:
    result = Allowance(1, room, bucket(tokens)).name_limit(claimed(took), wanted=10)
    assert result.refusal is refusal
    assert result.more is (refusal is None)


def test_a_limited_claim_knows_when_the_next_token_comes(clock: list[float]) -> None:
    limited = Allowance(1, None, bucket(3.5)).name_limit(claimed(3), wanted=10)
    assert limited.next_due == timedelta(seconds=0.05) + limits.ROUNDING
    clock[0] += 0.02  # The statement that claimed took so long.
    limited = Allowance(1, None, bucket(3.5)).name_limit(claimed(3), wanted=10)
    assert limited.next_due is not None
    assert limited.next_due.total_seconds() == pytest.approx(0.03, abs=1e-4)
    clock[0] += 5
    assert Allowance(1, None, bucket(0.5)).refusal == NotYet(Refusal.RATE_LIMITED, limits.ROUNDING)


def test_a_claim_that_another_limit_refused_keeps_its_reason(clock: list[float]) -> None:
    paused = claimed(0)._replace(refusal=Refusal.PAUSED)
    assert Allowance(1, None, bucket(0.0)).name_limit(paused, wanted=10) is paused
