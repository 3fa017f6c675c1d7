"""Numbers of the dashboard are short, and mark what rounding or a cap hides."""

import pytest

from pulljobs.admin.dashboard import formats


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.00042, "0.42 ms"),
        (0.012, "12 ms"),
        (0.9996, "1 s"),
        (1.234, "1.23 s"),
        (59.4, "59.4 s"),
        (59.97, "1 min"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (3599.8, "1 h"),
        (3600, "1 h"),
        (3660, "1 h 1 min"),
        (86_399, "1 d"),
        (90_000, "1 d 1 h"),
        (864_000, "10 d"),
    ],
)
def test_durations_have_at_most_two_units(seconds: float | None, text: str) -> None:
    assert formats.duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (59.9, "60 s"), (61, "1 min"), (7199, "1 h"), (9e5, "10 d")]
)
def test_ages_have_one_unit(seconds: float, text: str) -> None:
    assert formats.coarse(seconds) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0"),
        (7, "7"),
        (999, "999"),
        (9_999, "9,999"),
        (9_999.7, "10k"),
        (12_345, "12.3k"),
        (999_499, "999k"),
        (999_600, "1M"),
        (1.2e6, "1.2M"),
        (999_600_000, "1G"),
        (3e9, "3G"),
    ],
)
def test_large_counts_are_abbreviated(count: float, text: str) -> None:
    assert formats.compact(count) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.00001, "< 0.01 %"),
        (0.004, "0.4 %"),
        (0.0026, "0.26 %"),
        (0.12345, "12.3 %"),
        (0.25, "25 %"),
        (0.99999, "> 99.9 %"),
        (1, "100 %"),
    ],
)
def test_a_share_is_never_rounded_to_none_or_all(share: float, text: str) -> None:
    assert formats.percent(share) == text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 bytes"), (8192, "8.19 kB"), (999_900, "1 MB"), (5e9, "5 GB")]
)
def test_sizes_have_decimal_units(count: float, text: str) -> None:
    assert formats.size(count) == text


def test_a_capped_count_ends_with_a_plus() -> None:
    assert formats.counted(1999, is_least=False) == "1,999"
    assert formats.counted(2000, is_least=True) == "2,000+"
