"""Circuit of a consumer, by the back-off rules of NSQ's guide."""

from itertools import count

import pytest

from pulljobs.engine.circuit import REMEMBERED, Circuit, CircuitState, Result

JOBS = count()


def claimed(circuit: Circuit, job: int | None = None, now: float = 0) -> tuple[int, int]:
    """Admit a job, by default a new one. Return the circuit's ticket for it, and its id."""
    job = next(JOBS) if job is None else job
    assert circuit.admit(circuit.ticket, job, now) == 0
    return circuit.ticket, job


def opened(*, initial: float = 1, longest: float = 120, after: int = 1) -> Circuit:
    """Return a circuit that opened at time 0."""
    circuit = Circuit(initial, longest, after)
    for _failure in range(after):
        assert circuit.room(0) is None
        circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    return circuit


def probe(circuit: Circuit, result: Result, now: float | None = None) -> float:
    """Let one probe end with this result, as soon as the circuit permits a probe.

    Return the seconds for which nothing may be claimed after it, or 0 if the circuit is closed.
    """
    now = circuit.blocked_until if now is None else now
    assert circuit.room(now) == 1
    job = claimed(circuit, now=now)
    assert circuit.room(now) == 0, "one probe at a time"
    circuit.count_result(*job, result, now)
    return circuit.blocked_until - now if circuit.level else 0.0


def test_failures_raise_the_block_to_its_cap_and_nothing_is_claimed_in_it() -> None:
    circuit = opened()
    blocks = [circuit.blocked_until]
    for _failure in range(7):
        assert circuit.room(circuit.blocked_until - 0.001) == 0
        blocks.append(probe(circuit, Result.FAILURE))
    assert blocks == [2, 4, 8, 16, 32, 64, 120, 120]


def test_a_success_lowers_the_level_by_one_and_only_level_0_closes() -> None:
    circuit = opened()
    assert [probe(circuit, Result.FAILURE) for _ in range(2)] == [4, 8]
    assert [probe(circuit, Result.SUCCESS) for _ in range(3)] == [4, 2, 0]
    assert circuit.state(10_000) is CircuitState.CLOSED
    assert circuit.room(10_000) is None, "full speed"


def test_every_step_to_the_cap_has_a_step_back() -> None:
    circuit = opened(longest=5)
    assert [probe(circuit, Result.FAILURE) for _ in range(5)] == [4, 5, 5, 5, 5]
    assert [probe(circuit, Result.SUCCESS) for _ in range(3)] == [4, 2, 0]


def test_neutral_outcomes_change_nothing_and_free_the_probe() -> None:
    circuit = Circuit(1, 120, 2)
    for result in (Result.FAILURE, Result.NEUTRAL):
        circuit.count_result(*claimed(circuit), result, 0)
    assert circuit.state(0) is CircuitState.CLOSED
    circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    assert circuit.level == 1
    before = circuit.blocked_until
    probe(circuit, Result.NEUTRAL, 3)
    assert (circuit.level, circuit.blocked_until) == (1, before)
    assert circuit.room(3) == 1


@pytest.mark.parametrize(("initial", "longest"), [(0, 120), (1, 0)])
def test_zero_disables_the_circuit(initial: float, longest: float) -> None:
    circuit = Circuit(initial, longest, 1)
    for _failure in range(10):
        assert not circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    assert circuit.room(0) is None


def test_a_cap_below_the_first_step_is_that_step() -> None:
    circuit = opened(longest=0.5)
    assert circuit.blocked_until == 0.5
    assert probe(circuit, Result.FAILURE) == 0.5
    assert probe(circuit, Result.SUCCESS) == 0


def test_only_failures_in_a_row_open_it() -> None:
    circuit = Circuit(1, 120, 5)
    for result in [Result.FAILURE] * 4 + [Result.SUCCESS] + [Result.FAILURE] * 4:
        assert not circuit.count_result(*claimed(circuit), result, 0)
    assert circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    assert circuit.state(0) is CircuitState.OPEN


@pytest.mark.parametrize("result", list(Result))
def test_a_job_claimed_before_the_block_changes_nothing(result: Result) -> None:
    """The result of a job claimed before the circuit opened never changes the circuit."""
    circuit = Circuit(1, 120, 1)
    straggler = claimed(circuit)
    circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    assert not circuit.count_result(*straggler, result, 1)
    probe = claimed(circuit, now=3)
    assert not circuit.count_result(*straggler, result, 3)
    assert circuit.room(3) == 0, "the probe has not ended"
    circuit.count_result(*probe, Result.SUCCESS, 3)
    assert not circuit.count_result(*straggler, result, 4)
    assert circuit.state(4) is CircuitState.CLOSED


def test_a_claim_under_way_when_the_circuit_opens_counts_as_before_the_block() -> None:
    """Jobs of a claim that began before the circuit opened neither change it nor are its probe."""
    circuit = Circuit(1, 120, 1)
    ticket = circuit.ticket
    assert circuit.room(0) is None
    circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    for result in Result:
        job = next(JOBS)
        assert circuit.admit(ticket, job, 0.1) == 0
        assert not circuit.count_result(ticket, job, result, 0.1)
    assert (circuit.state(0.1), circuit.level) == (CircuitState.OPEN, 1)
    assert circuit.room(circuit.blocked_until) == 1


def test_a_job_that_fails_again_and_again_counts_once() -> None:
    circuit, poison, other = Circuit(1, 120, 3), next(JOBS), next(JOBS)
    for _round in range(50):
        for job in (poison, other):
            assert not circuit.count_result(*claimed(circuit, job), Result.FAILURE, 0)
    assert circuit.count_result(*claimed(circuit), Result.FAILURE, 0)


def test_a_job_that_counted_counts_again_after_a_success() -> None:
    circuit, poison = Circuit(1, 120, 2), next(JOBS)
    circuit.count_result(*claimed(circuit, poison), Result.FAILURE, 0)
    circuit.count_result(*claimed(circuit), Result.SUCCESS, 0)
    circuit.count_result(*claimed(circuit, poison), Result.FAILURE, 0)
    assert circuit.count_result(*claimed(circuit), Result.FAILURE, 0)


def opened_by(*jobs: int) -> Circuit:
    circuit = Circuit(1, 120, len(jobs))
    for job in jobs:
        circuit.count_result(*claimed(circuit, job), Result.FAILURE, 0)
    assert circuit.level == 1
    return circuit


def test_a_job_that_is_known_to_fail_is_given_back_so_that_another_is_the_probe() -> None:
    first, second, healthy = next(JOBS), next(JOBS), next(JOBS)
    circuit = opened_by(first, second)
    assert [circuit.admit(circuit.ticket, job, 2) for job in (first, second)] == [1, 1]
    assert circuit.room(2) == 1, "the next claim looks for the probe"
    assert circuit.admit(circuit.ticket, healthy, 2) == 0
    assert circuit.room(2) == 0
    assert circuit.count_result(circuit.ticket, healthy, Result.SUCCESS, 2)
    assert circuit.state(2) is CircuitState.CLOSED


def test_a_job_that_is_known_to_fail_runs_next_to_the_probe_if_it_is_drawn_again() -> None:
    """One job that is known to fail runs next to the probe. Other such jobs are given back."""
    first, second = next(JOBS), next(JOBS)
    circuit = opened_by(first, second)
    for job in (first, second):
        assert circuit.admit(circuit.ticket, job, 2) == 1
    assert circuit.admit(circuit.ticket, first, 3) == 0
    assert circuit.room(3) == 1, "it is not the probe"
    assert [circuit.admit(circuit.ticket, second, 3) for _draw in range(3)] == [2, 2, 2]
    before = circuit.blocked_until
    assert not circuit.count_result(circuit.ticket, first, Result.FAILURE, 4)
    assert (circuit.level, circuit.blocked_until) == (1, before), "its failure says nothing new"
    assert circuit.admit(circuit.ticket, first, 4) == 1, "it is given back first, every time"
    assert circuit.admit(circuit.ticket, second, 4) == 0
    assert circuit.count_result(circuit.ticket, second, Result.SUCCESS, 4), "its success counts"
    assert circuit.state(4) is CircuitState.CLOSED


def test_a_job_that_was_given_back_is_not_the_end_of_the_probe() -> None:
    circuit = opened()
    ticket, probe_job = claimed(circuit, now=2)
    waiting = next(JOBS)
    assert circuit.admit(ticket, waiting, 2) > 0
    circuit.count_result(ticket, waiting, Result.NEUTRAL, 2)
    assert circuit.room(2) == 0
    circuit.count_result(ticket, probe_job, Result.NEUTRAL, 2)
    assert circuit.room(2) == 1


def test_a_job_that_was_claimed_before_the_block_and_failed_is_known_to_fail() -> None:
    circuit, straggler = Circuit(1, 120, 1), next(JOBS)
    ticket, _job = claimed(circuit, straggler)
    circuit.count_result(*claimed(circuit), Result.FAILURE, 0)
    circuit.count_result(ticket, straggler, Result.FAILURE, 1)
    assert circuit.admit(circuit.ticket, straggler, 2) == 1


def test_the_circuit_remembers_a_bounded_number_of_failing_jobs() -> None:
    circuit = opened()
    for _probe in range(2 * REMEMBERED):
        probe(circuit, Result.FAILURE)
    assert circuit.failing == REMEMBERED
