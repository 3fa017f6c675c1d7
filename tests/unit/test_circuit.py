"""Circuit of a consumer, by the back-off rules of NSQ's guide."""

import pytest

from pulljobs.engine.circuit import Circuit, CircuitState, Result


def claimed(circuit: Circuit) -> int:
    """Begin and end a claim now; return its ticket."""
    circuit.claimed(circuit.ticket)
    return circuit.ticket


def opened(*, initial: float = 1, longest: float = 120, after: int = 1) -> Circuit:
    """Return a circuit that opened at time 0."""
    circuit = Circuit(initial, longest, after)
    for _failure in range(after):
        assert circuit.room(0) is None
        circuit.tell(claimed(circuit), Result.FAILURE, 0)
    return circuit


def probe(circuit: Circuit, result: Result, now: float | None = None) -> float:
    """Let one probe through as soon as the circuit permits; return the seconds blocked after it."""
    now = circuit.blocked_until if now is None else now
    assert circuit.room(now) == 1
    ticket = claimed(circuit)
    assert circuit.room(now) == 0, "one probe at a time"
    circuit.tell(ticket, result, now)
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
    ticket = claimed(circuit)
    circuit.tell(ticket, Result.FAILURE, 0)
    circuit.tell(ticket, Result.NEUTRAL, 0)
    assert circuit.state(0) is CircuitState.CLOSED
    circuit.tell(ticket, Result.FAILURE, 0)
    assert circuit.level == 1
    before = circuit.blocked_until
    probe(circuit, Result.NEUTRAL, 3)
    assert (circuit.level, circuit.blocked_until) == (1, before)
    assert circuit.room(3) == 1


@pytest.mark.parametrize(("initial", "longest"), [(0, 120), (1, 0)])
def test_zero_disables_the_circuit(initial: float, longest: float) -> None:
    circuit = Circuit(initial, longest, 1)
    for _failure in range(10):
        assert not circuit.tell(claimed(circuit), Result.FAILURE, 0)
    assert circuit.room(0) is None


def test_a_cap_below_the_first_step_is_that_step() -> None:
    circuit = opened(longest=0.5)
    assert circuit.blocked_until == 0.5
    assert probe(circuit, Result.FAILURE) == 0.5
    assert probe(circuit, Result.SUCCESS) == 0


def test_only_failures_in_a_row_open_it() -> None:
    circuit = Circuit(1, 120, 5)
    ticket = claimed(circuit)
    for result in [Result.FAILURE] * 4 + [Result.SUCCESS] + [Result.FAILURE] * 4:
        assert not circuit.tell(ticket, result, 0)
    assert circuit.tell(ticket, Result.FAILURE, 0)
    assert circuit.state(0) is CircuitState.OPEN


@pytest.mark.parametrize("result", list(Result))
def test_a_job_claimed_before_the_block_changes_nothing(result: Result) -> None:
    """It counts neither in the block, nor as the probe, nor after the circuit closed again."""
    circuit = Circuit(1, 120, 1)
    straggler = claimed(circuit)
    circuit.tell(claimed(circuit), Result.FAILURE, 0)
    assert not circuit.tell(straggler, result, 1)
    ticket = claimed(circuit)
    assert not circuit.tell(straggler, result, 3)
    assert circuit.room(3) == 0, "the probe has not ended"
    circuit.tell(ticket, Result.SUCCESS, 3)
    assert not circuit.tell(straggler, result, 4)
    assert circuit.state(4) is CircuitState.CLOSED


def test_a_claim_under_way_when_the_circuit_opens_counts_as_before_the_block() -> None:
    """Its jobs change nothing, and none of them is the probe."""
    circuit = Circuit(1, 120, 1)
    ticket = circuit.ticket
    assert circuit.room(0) is None
    circuit.tell(claimed(circuit), Result.FAILURE, 0)
    circuit.claimed(ticket)
    for result in Result:
        assert not circuit.tell(ticket, result, 0.1)
    assert (circuit.state(0.1), circuit.level) == (CircuitState.OPEN, 1)
    assert circuit.room(circuit.blocked_until) == 1
