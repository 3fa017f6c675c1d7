"""The checker sees what is wrong, and nothing else."""

import pytest

from tests.faults.history import (
    ANSWERED,
    CLAIMED,
    RENEWED,
    SENT,
    Line,
    faults,
    shares,
)


def claim(token: str, since: float, at: float, seconds: float = 10) -> Line:
    return Line(CLAIMED, 1, token, 100, since, at, str(seconds))


def settle(token: str, since: float, at: float, said: str = "DELIVERED") -> list[Line]:
    return [Line(SENT, 1, token, 100, since, since), Line(ANSWERED, 1, token, 100, since, at, said)]


def renew(token: str, since: float, at: float) -> Line:
    return Line(RENEWED, 1, token, 100, since, at, "10")


GOOD = {
    "claimed and delivered": [claim("a", 0, 1), *settle("a", 2, 3)],
    "taken over after the lease": [
        claim("a", 0, 1),
        claim("b", 11, 12),
        *settle("a", 13, 14, "LOST"),
        *settle("b", 13, 14),
    ],
    "late, but nobody had taken it": [claim("a", 0, 1), *settle("a", 30, 31)],
    "tried again by its holder": [
        claim("a", 0, 1),
        *settle("a", 2, 3, "QUEUED"),
        claim("b", 2.5, 4),
        *settle("b", 5, 6),
    ],
    "killed before the answer": [claim("a", 0, 1), Line(SENT, 1, "a", 100, 2, 2)],
    "claims that overlap but may have followed each other": [
        claim("a", 0, 5),
        claim("b", 1, 7),
        *settle("a", 6, 8, "QUEUED"),
        *settle("b", 9, 10),
    ],
    "renewed, then lost": [
        claim("a", 0, 1),
        renew("a", 9, 10),
        claim("b", 20, 21),
        *settle("b", 22, 23),
    ],
}
BAD = {
    "delivered 2 times": [
        claim("a", 0, 1),
        *settle("a", 2, 3),
        claim("b", 2.5, 4),
        *settle("b", 5, 6),
    ],
    "delivered 0 times": [claim("a", 0, 1), *settle("a", 2, 3, "LOST")],
    "claimed under b while a held it": [
        claim("a", 0, 1),
        claim("b", 2, 3),
        *settle("b", 4, 5),
    ],
    "claimed under d while a held it": [
        claim("a", 0, 5),
        claim("d", 1, 6),
        *settle("a", 7, 8, "LOST"),
        *settle("d", 7, 8),
    ],
    "claimed under c while a held it": [
        claim("a", 0, 1),
        renew("a", 9, 9.5),
        claim("c", 17, 18),
        *settle("c", 30, 31),
    ],
    "claimed under b after it was delivered": [
        claim("a", 0, 1),
        *settle("a", 2, 3),
        claim("b", 4, 5),
        *settle("b", 6, 7, "LOST"),
    ],
    "written under a after b took it": [
        claim("a", 0, 1),
        claim("b", 11, 12),
        *settle("a", 13, 14),
        *settle("b", 15, 16, "LOST"),
    ],
    "claimed under e while a held it": [
        claim("a", 0, 1),
        claim("e", 11, 12),
        renew("a", 13, 14),
        *settle("e", 15, 16),
    ],
    "claimed twice under a": [claim("a", 0, 1), claim("a", 20, 21), *settle("a", 22, 23)],
    "which never claimed it": [claim("a", 0, 1), *settle("a", 2, 3), *settle("z", 4, 5, "LOST")],
}


@pytest.mark.parametrize("name", GOOD)
def test_good_history_has_no_fault(name: str) -> None:
    assert faults(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_bad_history_is_seen(name: str) -> None:
    assert any(name in fault for fault in faults(BAD[name])), faults(BAD[name])


def test_shares_are_of_the_claims() -> None:
    lines = [claim("a", 0, 1), claim("b", 0, 1), claim("c", 0, 1)._replace(process=7)]
    assert shares(lines) == {100: pytest.approx(2 / 3), 7: pytest.approx(1 / 3)}
