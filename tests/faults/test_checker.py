"""The checker of histories finds each broken rule and no other. Most histories are of job 1."""

from collections.abc import Sequence
from typing import Any

import pytest

from benchmarks.faults.checker import RULES, Case, find_faults
from benchmarks.faults.claim_rates import (
    ClaimRate,
    LimitChange,
    TimedClaim,
    find_overdrafts,
    make_rate,
)
from benchmarks.faults.history import (
    ANSWERED,
    CLAIMED,
    CONTINUED,
    ENDED,
    FROZE,
    GIVING_BACK,
    KILLED,
    LOCKED,
    PUBLISHED,
    READY,
    RENEWED,
    ROLLED_BACK,
    SENT,
    STARTED,
    STOPPED,
    THROTTLED,
    UNREADY,
    WORKED,
    Line,
)
from benchmarks.faults.key_limits import KeyLimits
from benchmarks.faults.liveness import DEAF_JOBS, Bounds
from benchmarks.faults.spans import Span
from benchmarks.faults.tables import Live, Settled, Tables

A, B = 100, 200
"""Process ids in the histories."""
PROCESS = {"a": A, "b": B, "c": 300, "d": 400}
Lines = Sequence[Line]
FAIR = KeyLimits(is_exclusive=False, is_fair=True)


def say(event: str, token: str, since: float, at: float | None = None, **more: Any) -> Line:
    process = more.pop("process", PROCESS.get(token, A))
    return Line(event, 1, token, process, since, since if at is None else at, **more)


def claim(token: str, since: float, at: float, seconds: float = 10, **more: Any) -> Line:
    return say(CLAIMED, token, since, at, seconds=seconds, **more)


def settle(token: str, since: float, at: float, state: str = "DELIVERED") -> list[Line]:
    event = "retry" if state == "QUEUED" else "deliver"
    return [say(SENT, token, since, outcome=event), say(ANSWERED, token, since, at, outcome=state)]


def sent(token: str, since: float, event: str = "deliver") -> Line:
    return say(SENT, token, since, outcome=event)


def run(token: str, since: float) -> Line:
    return say(STARTED, token, since)


def renew(token: str, since: float, at: float) -> Line:
    return say(RENEWED, token, since, at, seconds=10)


def kill(process: int, since: float) -> Line:
    return Line(KILLED, 0, "-", process, since, since)


def give_back(process: int, since: float, but: str) -> Line:
    return Line(GIVING_BACK, 0, "-", process, since, since, but)


def by(*tokens: str, state: str = "DELIVERED") -> Tables:
    return Tables(archived={1: [Settled(token, state, 0) for token in tokens]})


def publish(since: float, at: float | None = None) -> Line:
    return say(PUBLISHED, "-", since, at)


def end(token: str, since: float) -> Line:
    return say(ENDED, token, since)


def lock(since: float, at: float, job: int = 1, process: int = 0) -> Line:
    return Line(LOCKED, job, "-", process, since, at)


def freeze(since: float, at: float, process: int = A) -> list[Line]:
    return [
        Line(STOPPED, 0, "-", process, since, since),
        Line(CONTINUED, 0, "-", process, at, at),
    ]


def probe(event: str, since: float, at: float | None = None, process: int = A) -> Line:
    return Line(event, 0, "-", process, since, since if at is None else at, "503")


def throttle(consumer: int, since: float, at: float, seconds: float = 10) -> Line:
    return Line(THROTTLED, 0, "-", A, since, at, str(consumer), seconds)


def of_consumer(consumer: int) -> Tables:
    return Tables(archived=by("a").archived, consumers={1: consumer})


def late_steps(*moments: float) -> Lines:
    return [claim("a", 0, 1), *(say(WORKED, "a", at) for at in moments), *settle("a", 15, 16)]


def others(since: float, until: float) -> Lines:
    """Return a history in which process A is ready but claims nothing between `since` and `until`.

    Process B claims so many jobs meanwhile that the checker reports A, which claims none.
    """
    count = DEAF_JOBS + 2
    step = (until - since) / count
    claims = [
        claim("b", since + step * number, since + step * number)._replace(job=number + 2)
        for number in range(1, count)
    ]
    own = [claim("a", at, at)._replace(job=-int(at) - 1) for at in (since, until)]
    answers = [probe(READY, at) for at in range(int(since), int(until) + 1)]
    return [*own, *claims, *answers]


GOOD: dict[str, tuple[Lines, Tables]] = {
    "claimed and delivered": ([claim("a", 0, 1), *settle("a", 2, 3)], by("a")),
    "taken over after the lease": (
        [
            claim("a", 0, 1),
            run("a", 1),
            claim("b", 11, 12),
            run("b", 12),
            *settle("a", 13, 14, "LOST"),
            *settle("b", 13, 14),
        ],
        by("b"),
    ),
    "late, but no other worker had taken it": ([claim("a", 0, 1), *settle("a", 30, 31)], by("a")),
    "tried again by its holder": (
        [
            claim("a", 0, 1),
            run("a", 1),
            *settle("a", 2, 3, "QUEUED"),
            claim("b", 2.5, 4, retry_count=1),
            run("b", 4),
            *settle("b", 5, 6),
        ],
        by("b"),
    ),
    "killed before the answer, and written": (
        [claim("a", 0, 1), sent("a", 2), kill(A, 2.5)],
        by("a"),
    ),
    "killed before the answer, and not written": (
        [
            claim("a", 0, 1),
            run("a", 1),
            sent("a", 2),
            kill(A, 2),
            claim("b", 2.5, 3),
            run("b", 3),
            *settle("b", 4, 5),
        ],
        by("b"),
    ),
    "killed while it ran, and charged": (
        [
            claim("a", 0, 1),
            run("a", 1),
            kill(A, 2),
            claim("b", 2.5, 3, retry_count=1, deliveries=1),
            *settle("b", 4, 5),
        ],
        by("b"),
    ),
    "claims that overlap but may have followed each other": (
        [claim("a", 0, 5), claim("b", 1, 7), *settle("a", 6, 8, "QUEUED"), *settle("b", 9, 10)],
        by("b"),
    ),
    "taken over before the answer of the first claim was recorded": (
        [
            claim("a", 0, 13, deliveries=1),
            claim("b", 11, 12, deliveries=1),
            run("b", 12),
            run("a", 13),
            *settle("a", 14, 15, "LOST"),
            *settle("b", 14, 16),
        ],
        by("b"),
    ),
    "given back for its process, then returned by two holders": (
        [
            claim("a", 0, 1, deliveries=1),
            kill(A, 1.5),
            claim("b", 2, 3, deliveries=1),
            say(SENT, "b", 4, outcome="release"),
            say(ANSWERED, "b", 4, 4.1, outcome="QUEUED"),
            claim("c", 5, 6, deliveries=1),
            run("c", 6),
            *settle("c", 7, 7.1, "QUEUED"),
            claim("d", 8, 9, retry_count=1, deliveries=2),
            *settle("d", 10, 11),
        ],
        by("d"),
    ),
    "claimed by a long poll that began before another claim of the job": (
        [
            claim("b", 5, 5.1, deliveries=1),
            say(SENT, "b", 6, outcome="release"),
            say(ANSWERED, "b", 6, 6.1, outcome="QUEUED"),
            claim("a", 0, 6.2, deliveries=1),
            run("a", 6.3),
            *settle("a", 7, 7.1, "QUEUED"),
            claim("c", 8, 8.1, retry_count=1, deliveries=2),
            *settle("c", 9, 9.1),
        ],
        by("c"),
    ),
    "renewed, then lost": (
        [claim("a", 0, 1), renew("a", 9, 10), claim("b", 20, 21), *settle("b", 22, 23)],
        by("b"),
    ),
    "released by a process that had not received the answer": (
        [claim("a", 0, 1), give_back(A, 2, but="other"), claim("b", 2.5, 3), *settle("b", 4, 5)],
        by("b"),
    ),
    "dead, and remembered": (
        [claim("a", 0, 1), *settle("a", 2, 3, "DEAD")],
        Tables({1: Live("DEAD", 0)}, {1: [Settled("a", "DEAD", 0)]}),
    ),
    "rolled back": ([say(ROLLED_BACK, "-", 0)], Tables()),
}
GOOD["jobs of a key in turn, though the first worker was frozen at its answer"] = (
    [
        claim("a", 0, 20),
        claim("b", 11, 12)._replace(job=2),
        *settle("a", 20, 21),
        *(line._replace(job=2) for line in settle("b", 21, 22)),
    ],
    Tables(archived={1: by("a").archived[1], 2: by("b").archived[1]}, keys={1: "k", 2: "k"}),
)
GOOD |= {
    "locked by another session while it waited": (
        [publish(0), lock(1, 30), claim("a", 31, 32), *settle("a", 33, 34)],
        by("a"),
    ),
    "claimed with an answer that was lost with its process": (
        [publish(0), claim("a", 15, 16, deliveries=2), *settle("a", 17, 18)],
        by("a"),
    ),
    "held by a lost machine whose sessions stayed open": (
        [
            publish(0),
            claim("a", 0, 1),
            run("a", 1),
            kill(A, 2),
            lock(2, 20, job=0, process=A),
            claim("b", 25, 26, deliveries=1),
            *settle("b", 27, 28),
        ],
        by("b"),
    ),
    "settled late by a frozen process": (
        [
            publish(0),
            claim("a", 0, 1),
            run("a", 1),
            renew("a", 4, 5),
            end("a", 6),
            *freeze(6.5, 18),
            *settle("a", 19, 20),
        ],
        by("a"),
    ),
    "one step of a frozen handler after its lease": (late_steps(5, 12), by("a")),
    "not ready while it is frozen, and shortly after": (
        [*freeze(0, 8), probe(UNREADY, 4), probe(UNREADY, 10), probe(READY, 12)],
        Tables(),
    ),
    "ready for a moment after it froze": ([*freeze(0, 8), probe(READY, 2)], Tables()),
}
BAD: dict[str, tuple[Lines, Tables]] = {
    "was acknowledged and is nowhere": ([say(PUBLISHED, "-", 0)], Tables()),
    "was rolled back and is there": ([say(ROLLED_BACK, "-", 0)], by("a")),
    "was delivered 2 times": (
        [claim("a", 0, 1), *settle("a", 2, 3), claim("b", 2.5, 4), *settle("b", 5, 6)],
        by("a", "b"),
    ),
    "was delivered 1 times, and is QUEUED now": (
        [claim("a", 0, 1), *settle("a", 2, 3)],
        Tables({1: Live("QUEUED", 0)}, by("a").archived),
    ),
    "is INFLIGHT at the end": ([claim("a", 0, 1)], Tables({1: Live("INFLIGHT", 0)})),
    "is DEAD at the end": (
        [claim("a", 0, 1), *settle("a", 2, 3, "DEAD")],
        Tables({1: Live("DEAD", 0)}),
    ),
    "was settled DELIVERED, DELIVERED under a": (
        [claim("a", 0, 1), *settle("a", 2, 3), *settle("a", 4, 5)],
        by("a"),
    ),
    "was archived twice under one of a, a": ([claim("a", 0, 1), *settle("a", 2, 3)], by("a", "a")),
    "was answered DELIVERED under a, not archived": (
        [
            claim("a", 0, 1),
            run("a", 1),
            *settle("a", 2, 3),
            claim("b", 12, 13),
            *settle("b", 14, 15),
        ],
        by("b"),
    ),
    "was archived under a, which never asked for it": (
        [claim("a", 0, 1), claim("b", 12, 13), *settle("b", 14, 15, "LOST")],
        by("a"),
    ),
    "was delivered under x, which claimed nothing": (
        [claim("a", 0, 1), *settle("a", 2, 3, "LOST")],
        by("x"),
    ),
    "was claimed under b while a held it": (
        [claim("a", 0, 1), claim("b", 2, 3), *settle("b", 4, 5)],
        by("b"),
    ),
    "was claimed under d while a held it": (
        [claim("a", 0, 5), claim("d", 1, 6), *settle("a", 7, 8, "LOST"), *settle("d", 7, 8)],
        by("d"),
    ),
    "was claimed under c while a held it": (
        [claim("a", 0, 1), renew("a", 9, 9.5), claim("c", 17, 18), *settle("c", 30, 31)],
        by("c"),
    ),
    "was claimed under b after its end": (
        [claim("a", 0, 1), *settle("a", 2, 3), claim("b", 4, 5), *settle("b", 6, 7, "LOST")],
        by("a"),
    ),
    "was claimed under c after its end": (
        [claim("a", 0, 1), *settle("a", 2, 3, "DEAD"), claim("c", 4, 5)],
        Tables({1: Live("INFLIGHT", 0)}, by("a", state="DEAD").archived),
    ),
    "was written under a after b took it": (
        [
            claim("a", 0, 1),
            claim("b", 11, 12),
            *settle("a", 13, 14),
            *settle("b", 15, 16, "LOST"),
        ],
        by("a"),
    ),
    "was claimed under d, though a knew of it": (
        [
            claim("a", 0, 1),
            give_back(A, 2, but="a"),
            claim("d", 2.5, 3),
            *settle("d", 4, 5),
        ],
        by("d"),
    ),
    "was claimed twice under a": (
        [claim("a", 0, 1), claim("a", 20, 21), *settle("a", 22, 23)],
        by("a"),
    ),
    "was sent under z, which never claimed it": (
        [claim("a", 0, 1), *settle("a", 2, 3), *settle("z", 4, 5, "LOST")],
        by("a"),
    ),
    "ran 2 times under a": (
        [claim("a", 0, 1), run("a", 1), run("a", 2), *settle("a", 3, 4)],
        by("a"),
    ),
    "ran under b, though a had run it undisturbed": (
        [
            claim("a", 0, 1),
            run("a", 1),
            sent("a", 2),
            claim("b", 3, 4),
            run("b", 4),
            *settle("b", 5, 6),
        ],
        by("b"),
    ),
    "was charged 1 for a, which had not started it": (
        [claim("a", 0, 1), claim("b", 12, 13, retry_count=1), *settle("b", 14, 15)],
        by("b"),
    ),
    "was charged 2 for a": (
        [claim("a", 0, 1), run("a", 1), claim("b", 12, 13, retry_count=2), *settle("b", 14, 15)],
        by("b"),
    ),
}
BAD["was claimed while 1 held their key k"] = (
    [
        claim("a", 0, 1),
        claim("b", 2, 3)._replace(job=2),
        *settle("a", 4, 5),
        *(line._replace(job=2) for line in settle("b", 4, 5)),
    ],
    Tables(
        archived={1: by("a").archived[1], 2: by("b").archived[1]},
        keys={1: "k", 2: "k"},
    ),
)
BAD |= {
    "waited 12.0 s to be published": (
        [publish(0, 12), claim("a", 12, 13), *settle("a", 14, 15)],
        by("a"),
    ),
    "waited 12.0 s to be claimed, at 0.0": (
        [publish(0), claim("a", 12, 13), *settle("a", 14, 15)],
        by("a"),
    ),
    "waited 12.0 s to be claimed, at 11.0": (
        [
            publish(0),
            claim("a", 0, 1),
            run("a", 1),
            claim("b", 23, 24, deliveries=1),
            *settle("b", 25, 26),
        ],
        by("b"),
    ),
    "waited 12.0 s to be begun": (
        [publish(0), claim("a", 0, 1), renew("a", 9, 10), run("a", 13), *settle("a", 14, 15)],
        by("a"),
    ),
    "waited 12.0 s to be settled": (
        [
            publish(0),
            claim("a", 0, 1),
            run("a", 1),
            end("a", 2),
            renew("a", 9, 10),
            *settle("a", 13, 14),
        ],
        by("a"),
    ),
    "ran for 2.0 s after a had ended": (late_steps(5, 12, 13), by("a")),
    "was not ready (503) at 12.0, unexplained": ([*freeze(0, 8), probe(UNREADY, 12)], Tables()),
    "was ready 4.0 s after it had stopped to work": ([*freeze(0, 8), probe(READY, 4)], Tables()),
    "took 6.0 s to say that it is ready": ([probe(READY, 0, 6)], Tables()),
    "was ready and claimed nothing for 8.0 s": (others(20, 28), Tables()),
}
BAD |= {
    "had 1.00 tokens above its rate at 0.000": ([], Tables(claims=[TimedClaim(1, 0.0)] * 6)),
    "had 1.00 tokens above its rate at 0.100": (
        [],
        Tables(claims=[*[TimedClaim(1, 0.0)] * 5, *[TimedClaim(1, 0.1)] * 2]),
    ),
    "had 5.00 tokens above its rate at 9.000": (
        # Tokens above the burst are lost.
        [],
        Tables(claims=[TimedClaim(1, 0.0), *[TimedClaim(1, 9.0)] * 10]),
    ),
}
GOOD |= {
    "claims at the rate, after a burst": (
        [],
        Tables(claims=[*[TimedClaim(1, 0.0)] * 5, *(TimedClaim(1, n / 10) for n in range(1, 99))]),
    ),
    "claims of two consumers, each with a bucket": (
        [],
        Tables(claims=[TimedClaim(consumer, 0.0) for consumer in (1, 2) for _job in range(5)]),
    ),
    "a claim with the token of a released job": (
        [],
        Tables(claims=[*[TimedClaim(1, 0.0)] * 4, TimedClaim(1, 0.0, 0.05), TimedClaim(1, 0.05)]),
    ),
}
BAD["was claimed while consumer 7 was throttled"] = (
    [throttle(7, 0, 1), claim("a", 2, 3), *settle("a", 4, 5)],
    of_consumer(7),
)
GOOD["charged by a process that two overlapping faults stopped"] = (
    [
        claim("a", 0, 1),
        run("a", 1),
        *freeze(2, 14),
        *freeze(3, 15),
        claim("b", 12, 13, retry_count=1),
        *settle("b", 14, 15),
    ],
    by("b"),
)
GOOD |= {
    "claimed after a throttle": (
        [throttle(7, 0, 1, seconds=2), claim("a", 1.5, 3), *settle("a", 4, 5)],
        of_consumer(7),
    ),
    "claimed before the commit of a throttle": (
        [throttle(7, 1, 4), claim("a", 2, 3), *settle("a", 4, 5)],
        of_consumer(7),
    ),
    "claimed while another consumer was throttled": (
        [throttle(8, 0, 1), claim("a", 2, 3), *settle("a", 4, 5)],
        of_consumer(7),
    ),
}
RENAMED = {"was claimed under d, though a knew of it": "was claimed under d while a held it"}


def case(lines: Lines, tables: Tables) -> Case:
    in_order = sorted(lines, key=lambda line: line.at)
    bounds, rate = Bounds(lease_duration=10, ready=3), ClaimRate(10, burst=5)
    return Case(in_order, tables, threads=1, bounds=bounds, rate=rate)


@pytest.mark.parametrize("name", GOOD)
def test_good_history_has_no_fault(name: str) -> None:
    assert find_faults(case(*GOOD[name])) == {}


@pytest.mark.parametrize("name", BAD)
def test_bad_history_is_reported(name: str) -> None:
    complaints = [text for texts in find_faults(case(*BAD[name])).values() for text in texts]
    assert any(RENAMED.get(name, name) in text for text in complaints), complaints


def queued_claims(count: int, every: float) -> list[TimedClaim]:
    """Return claims, one every `every` seconds, of jobs that were all published at time 0."""
    return [TimedClaim(1, n * every, None, n, 0.0) for n in range(1, count + 1)]


def turns(served: str, fresh_at: float) -> list[TimedClaim]:
    """Return the claims of keys that take turns: each second two jobs of the next key in `served`.

    Jobs of the key b were available from `fresh_at` on, and those of other keys from 0.1 on.
    """
    return [
        TimedClaim(1, number, None, 2 * number + job, fresh_at if key == "b" else 0.1, key)
        for number, key in enumerate(served, 1)
        for job in (0, 1)
    ]


def test_every_rule_is_broken_here() -> None:
    broken = {rule for lines, tables in BAD.values() for rule in find_faults(case(lines, tables))}
    broken |= find_faults(Case([], Tables(), replaced=["worker-7 ended by itself"])).keys()
    lines = [claim("a", 0, 1), claim("b", 2, 3), *settle("a", 4, 5), *settle("b", 6, 7)]
    slow, rate = Tables(claims=queued_claims(60, 0.11)), ClaimRate(10, 1)
    limited = Case(lines, slow, in_flight=(1, False), rate=rate, disturbed=())
    broken |= find_faults(limited).keys()
    broken |= find_faults(Case(lines, Tables(), keys=KeyLimits(slots=1))).keys()
    unfair = Case(lines, Tables(claims=turns(9 * "a" + "ba", 0.1)), keys=FAIR, disturbed=())
    broken |= find_faults(unfair).keys()
    assert broken == {rule.__name__ for rule in RULES}


def test_killed_process_is_charged_for_no_more_than_its_threads_may_have_begun() -> None:
    lines = [
        line._replace(job=job)
        for job in (1, 2)
        for line in (claim("a", 0, 1), claim("b", 3, 4, retry_count=1), *settle("b", 5, 6))
    ]
    tables = Tables(archived={1: by("b").archived[1], 2: by("b").archived[1]})
    history = sorted([*lines, kill(A, 2)], key=lambda line: line.at)
    assert find_faults(Case(history, tables, threads=2)) == {}
    assert find_faults(Case(history, tables, threads=1)).keys() == {"only_what_started_is_charged"}


def test_a_frozen_client_is_charged_for_what_it_held() -> None:
    """All jobs that a frozen client of the HTTP API holds may count a retry.

    For a worker, only started jobs may, because its supervisor knows which ones have started.
    """
    lines = [claim("a", 0, 1), *freeze(2, 15), claim("b", 12, 13, retry_count=1)]
    history = sorted([*lines, *settle("b", 14, 15)], key=lambda line: line.at)
    assert find_faults(Case(history, by("b"), clients=frozenset({A}))) == {}
    assert find_faults(Case(history, by("b"))).keys() == {"only_what_started_is_charged"}


def test_a_handler_that_holds_the_interpreter_explains_the_waits_in_its_process() -> None:
    lines = [
        publish(0),
        claim("a", 0, 1),
        run("a", 1),
        say(FROZE, "a", 1, 14),
        end("a", 14),
        *settle("a", 15, 16, "LOST"),
        claim("b", 12, 13),
        *settle("b", 14, 15),
        probe(UNREADY, 10),
    ]
    assert find_faults(case(lines, by("b"))) == {}


def test_without_a_rate_any_number_of_jobs_may_be_claimed() -> None:
    assert make_rate("") is None
    assert find_faults(Case([], Tables(claims=[TimedClaim(1, 0.0)] * 99))) == {}


def test_the_default_burst_is_the_rate_of_a_second_and_at_least_one_job() -> None:
    assert make_rate("120/m") == ClaimRate(2.0, 2.0)
    assert make_rate("36/h") == ClaimRate(0.01, 1.0)


@pytest.mark.parametrize(
    ("rate", "claims", "sentence"),
    [
        # Windows: the number counts from the begin of each, and a release counts in its own only.
        (make_rate("5/s", window=True), [(0.9, None)] * 5 + [(1.0, None)] * 5, None),
        (make_rate("5/s", window=True), [(0.1, None)] * 6, "had 1.00 tokens above its rate at 0.0"),
        (make_rate("5/s", window=True), [(0.1, 0.5)] + [(0.6, None)] * 5, None),
        (make_rate("5/s", window=True), [(0.9, 1.5)] + [(0.9, None)] * 5, "had 1.00 tokens above"),
        # Costs: a job takes its own, and at most the burst.
        (ClaimRate(1, 5, costs={0: 3, 1: 3}), [(0.0, None)] * 2, "had 1.00 tokens above"),
        (ClaimRate(1, 5, costs={0: 9}), [(0.0, None)], None),
        (ClaimRate(1, 5, costs={0: 3, 1: 3}), [(0.0, 0.1), (0.1, None)], None),
        # A job that gives its tokens back twice lets another one in.
        (ClaimRate(1, 2, costs={0: 2}), [(0.0, 0.1), *[(0.1, None)] * 3], "had 1.00 tokens above"),
    ],
)
def test_windows_and_costs_are_replayed(
    rate: ClaimRate, claims: list[tuple[float, float | None]], sentence: str | None
) -> None:
    """The checker computes rates with windows and costs, and finds claims above them."""
    timed = [TimedClaim(1, at, released, job) for job, (at, released) in enumerate(claims)]
    sentences = list(find_overdrafts(timed, rate))
    assert (sentence is None) == (sentences == [])
    assert sentence is None or sentence in sentences[0]


def test_consumers_of_a_group_share_a_bucket() -> None:
    timed = [TimedClaim(consumer, 0.0) for consumer in (1, 2) for _job in range(3)]
    assert list(find_overdrafts(timed, ClaimRate(1, 5))) == []
    [sentence] = find_overdrafts(timed, ClaimRate(1, 5, is_shared=True))
    assert sentence.startswith("the group had 1.00 tokens above its rate")


@pytest.mark.parametrize(("every", "is_slow"), [(0.1, False), (0.104, False), (0.11, True)])
def test_a_rate_that_is_not_used_while_work_waits_is_found(every: float, is_slow: bool) -> None:
    tables = Tables(claims=queued_claims(60, every))
    judged = Case([], tables, rate=ClaimRate(10, 1), disturbed=())
    assert ("rates_are_used" in find_faults(judged)) == is_slow
    assert "rates_are_used" not in find_faults(Case([], tables, rate=ClaimRate(10, 1)))


def test_more_jobs_of_a_key_in_flight_than_it_has_slots_are_found() -> None:
    lines = [claim("a", 0, 1), claim("b", 2, 3), *settle("a", 4, 5), *settle("b", 6, 7)]
    held = Case(sorted(lines, key=lambda line: line.at), Tables(), keys=KeyLimits(False, slots=1))
    [sentence] = find_faults(held)["keys_keep_their_slots"]
    assert sentence.startswith("2 jobs of key")
    held = Case(held.lines, Tables(), keys=KeyLimits(False, slots=2))
    assert "keys_keep_their_slots" not in find_faults(held)


@pytest.mark.parametrize(
    ("served", "fresh_at", "is_unfair"),
    [
        ("abababab", 0.1, False),
        ("aabbaabb", 0.1, False),  # A process may serve a key by what it knew before.
        ("aaabbbaaabbb", 0.1, True),
        ("aabaabaabaab", 0.1, True),
        # A fresh key waits for a turn of the other one, and for the claim that goes on.
        ("aaaaba", 2.5, False),
        ("aaaaaba", 2.5, True),
    ],
)
def test_a_key_that_gets_ahead_of_another_is_found(
    served: str, fresh_at: float, is_unfair: bool
) -> None:
    timed = turns(served, fresh_at)
    judged = Case([claim("a", 0, 1)], Tables(claims=timed), keys=FAIR, disturbed=())
    assert ("keys_share" in find_faults(judged)) == is_unfair
    # Of jobs that wait for their time it judges nothing.
    delayed = [say(PUBLISHED, "-", 0, seconds=9)._replace(job=each.job) for each in timed]
    judged = Case([*delayed, claim("a", 0, 1)], judged.tables, keys=FAIR, disturbed=())
    assert "keys_share" not in find_faults(judged)


def test_a_job_waits_from_the_answer_to_its_publisher_on() -> None:
    timed = turns("aaaaaba", 0.1)
    lines = [publish(0, 92.5)._replace(job=each.job) for each in timed if each.key == "b"]
    judged = Case(
        [*lines, claim("a", 0, 1)],
        Tables(claims=timed, clock_offset=-90.0),
        keys=FAIR,
        disturbed=(),
    )
    [sentence] = find_faults(judged)["keys_share"]
    assert sentence == "of a and b of consumer 1 one got ahead by 6 jobs, with 2 jobs in a turn"


def test_a_rate_that_changes_counts_from_its_change_on() -> None:
    slower = LimitChange(10.0, 11.0, per_second=1.0, burst=1.0, slots=0)
    rate = ClaimRate(10, 1, changes=(slower,))
    quick = [TimedClaim(1, number / 10) for number in range(110)]
    assert list(find_overdrafts(quick, rate)) == []
    [sentence] = find_overdrafts([*quick, TimedClaim(1, 12.0), TimedClaim(1, 12.5)], rate)
    assert sentence == "consumer 1 had 0.50 tokens above its rate at 12.500"
    faster = ClaimRate(1, 1, changes=(LimitChange(10.0, 11.0, 10.0, 1.0, 0),))
    assert list(find_overdrafts([TimedClaim(1, 9.5), TimedClaim(1, 10.0)], faster)) == []


def test_a_rate_is_judged_where_no_fault_disturbs_its_use() -> None:
    tables = Tables(claims=queued_claims(60, 0.11))  # for 6.6 seconds
    for disturbed, is_judged in (([Span(0, 1)], True), ([Span(2.5, 4)], False), (None, False)):
        judged = Case([], tables, rate=ClaimRate(10, 1), disturbed=disturbed)
        assert ("rates_are_used" in find_faults(judged)) == is_judged
    throttled = Case([throttle(1, 0, 0)], tables, rate=ClaimRate(10, 1), disturbed=())
    assert "rates_are_used" not in find_faults(throttled)


def test_a_job_that_was_claimed_under_a_higher_bound_keeps_its_slot() -> None:
    lines = [claim("a", 0, 1), claim("b", 2, 3), *settle("a", 7, 8), *settle("b", 7, 8)]
    keys = KeyLimits(False, slots=2)
    for since, is_broken in ((4.0, False), (1.2, True)):
        change = LimitChange(since, since + 0.5, 0, 0, slots=1)
        judged = Case(
            sorted(lines, key=lambda line: line.at), Tables(), keys=keys, changes=[change]
        )
        assert ("keys_keep_their_slots" in find_faults(judged)) == is_broken


@pytest.mark.parametrize("is_shared", [False, True])
def test_more_jobs_in_flight_than_the_bound_are_found(is_shared: bool) -> None:
    lines = [claim("a", 0, 1), claim("b", 2, 3), *settle("a", 4, 5), *settle("b", 6, 7)]
    held = Case(sorted(lines, key=lambda line: line.at), Tables(), in_flight=(1, is_shared))
    [sentence] = find_faults(held)["jobs_in_flight_keep_the_bound"]
    assert sentence.startswith("2 jobs of")
