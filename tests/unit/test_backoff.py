from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pulljobs.backoff import LONGEST, expand

NUMBERS = st.floats(0, 1e9).map(lambda number: f"{number:.3f}")
STRATEGIES = st.one_of(
    st.just("none"),
    st.builds("constant:{}".format, NUMBERS),
    st.builds("linear:{}+{}".format, NUMBERS, NUMBERS),
    st.builds("linear:{}<{}".format, NUMBERS, NUMBERS),
    st.builds("exponential:{}".format, NUMBERS),
    st.builds("exponential:{}x{}<{}".format, NUMBERS, NUMBERS, NUMBERS),
    st.lists(st.floats(0, LONGEST).map(str), min_size=1).map(",".join),
)


@pytest.mark.parametrize(
    ("text", "delays"),
    [
        ("none", [0, 0, 0]),
        ("constant:10", [10, 10, 10, 10]),
        ("constant:0", [0, 0]),
        ("linear:1+2", [1, 3, 5, 7, 9]),
        ("linear:3", [3, 6, 9, 12]),
        ("linear:1+2<4", [1, 3, 4, 4]),
        ("exponential:1", [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]),
        ("exponential:1x3<60", [1, 3, 9, 27, 60, 60]),
        ("exponential:0.5 x 2", [0.5, 1, 2]),
        ("5,30,60", [5, 30, 60, 120, 180, 240]),
        (" 5, 30 ", [5, 30, 60]),
        ("7", [7, 14, 21]),
    ],
)
def test_delays_of_a_strategy(text: str, delays: list[float]) -> None:
    expanded = expand(text)
    assert [expanded.before(retry) for retry in range(1, len(delays) + 1)] == delays


@pytest.mark.parametrize(
    ("text", "delay"),
    [
        ("constant:10", 10),
        ("exponential:1", 300),
        ("exponential:2x1.5<1000", 1000),
        ("linear:1<100", 100),
        ("5,30,60", (2000 - 3 + 1) * 60),
        ("86400", LONGEST),
    ],
)
def test_the_2000th_delay(text: str, delay: float) -> None:
    assert expand(text).before(2000) == delay


@given(STRATEGIES, st.integers(1, 40_000))
def test_a_delay_is_never_negative_nor_above_its_cap(text: str, retry: int) -> None:
    delays = expand(text)
    assert 0 <= delays.before(retry) <= delays.cap <= LONGEST


@pytest.mark.parametrize(
    "text", ["linear:1+2", "linear:5", "exponential:1", "exponential:1x1", "9,9"]
)
def test_delays_never_fall_and_their_steps_stay_small(text: str) -> None:
    """Delays never fall, and no late step between two of them exceeds the largest early step."""
    delays = [expand(text).before(retry) for retry in range(1, 500)]
    steps = [later - earlier for earlier, later in pairwise(delays)]
    assert min(steps) >= 0
    assert max(steps[150:]) <= max(steps[:150])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "5,",
        "-5",
        "5,-1",
        "nan",
        "inf",
        "1e400",
        "None",
        "constant",
        "constant:",
        "constant:-1",
        "constant:1+2",
        "constant:1x2",
        "linear:1x2",
        "exponential:1+2",
        "exponential:1x",
        "linear:1<",
        "99999999999",
        "5;30",
        "\x00",
    ],
)
def test_an_invalid_strategy_is_refused_with_the_valid_forms(text: str) -> None:
    with pytest.raises(ValueError, match="write none, constant:10, linear:1"):
        expand(text)
