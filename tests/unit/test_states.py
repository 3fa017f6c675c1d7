"""Transitions of a job, compared with the table of the design."""

from pulljobs.states import LIVE, SETTLED, TRANSITIONS, Event, State

DESIGN = """
claim   | QUEUED          | INFLIGHT
renew   | INFLIGHT        | INFLIGHT
deliver | INFLIGHT        | DELIVERED
reject  | INFLIGHT        | DEAD
retry   | INFLIGHT        | QUEUED    | DEAD
release | INFLIGHT        | QUEUED
suspend | INFLIGHT        | QUEUED
expire  | INFLIGHT        | QUEUED    | DEAD
revive  | DEAD            | INFLIGHT
redrive | DEAD            | QUEUED
kill    | QUEUED INFLIGHT | DEAD
reschedule | QUEUED        | QUEUED
delete  | DEAD            | gone
"""


def test_transitions_are_those_of_the_design() -> None:
    lines = [[cell.strip() for cell in line.split("|")] for line in DESIGN.strip().splitlines()]
    table = {line[0]: line[1:] for line in lines}
    assert {
        str(event): [
            " ".join(sorted(transition.sources, reverse=True)),
            str(transition.target or "gone"),
            *([str(transition.exhausted)] if transition.exhausted else []),
        ]
        for event, transition in TRANSITIONS.items()
    } == table


def test_every_event_has_a_transition() -> None:
    assert set(TRANSITIONS) == set(Event)


def test_of_settled_jobs_only_dead_ones_have_a_transition() -> None:
    sources = frozenset[State]().union(*(transition.sources for transition in TRANSITIONS.values()))
    assert sources == LIVE
    assert SETTLED.difference(LIVE) == {State.DELIVERED}
