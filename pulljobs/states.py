"""State machine of jobs, as one table of data: which event leads from which states to which.

Admin buttons, commands, API answers, the lifecycle page of the docs, and a test of all combinations
read this table. SQL statements have it in their conditions, which that test compares. A DELIVERED
job exists only in the archive.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import Final, NamedTuple


class State(StrEnum):
    QUEUED = "QUEUED"
    INFLIGHT = "INFLIGHT"
    DELIVERED = "DELIVERED"
    DEAD = "DEAD"


class Event(StrEnum):
    CLAIM = "claim"
    RENEW = "renew"
    DELIVER = "deliver"
    REJECT = "reject"
    RETRY = "retry"
    RELEASE = "release"
    SUSPEND = "suspend"
    EXPIRE = "expire"
    REVIVE = "revive"
    REDRIVE = "redrive"
    KILL = "kill"
    RESCHEDULE = "reschedule"
    DELETE = "delete"


class Reason(StrEnum):
    """Reason for which a job is DEAD."""

    REJECTED = "rejected"
    RETRIES_EXHAUSTED = "retries_exhausted"
    MAX_DELIVERIES = "max_deliveries"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    PURGED = "purged"
    KEY_OVERFLOW = "key_overflow"


def reason_words(reason: str) -> str:
    """Return the reason of a dead job in words, as pages and commands show it."""
    return reason.replace("_", " ")


class Transition(NamedTuple):
    """Effect of an event on the state of a job."""

    sources: frozenset[State]
    target: State | None
    """New state, or None if the event deletes the job, whose history stays in the archive."""
    exhausted: State | None
    """State of a job whose retries are used up, or None if the event does not count retries."""
    actor: str
    """Cause of the event, such as the reaper or an operator, as the lifecycle page shows it."""


def _transition(
    source: str, target: State | None, actor: str, exhausted: State | None = None
) -> Transition:
    return Transition(frozenset(map(State, source.split())), target, exhausted, actor)


TRANSITIONS: Final = MappingProxyType(
    {
        Event.CLAIM: _transition("QUEUED", State.INFLIGHT, "pulling"),
        Event.RENEW: _transition("INFLIGHT", State.INFLIGHT, "holder"),
        Event.DELIVER: _transition("INFLIGHT", State.DELIVERED, "holder"),
        Event.REJECT: _transition("INFLIGHT", State.DEAD, "holder"),
        Event.RETRY: _transition("INFLIGHT", State.QUEUED, "holder", exhausted=State.DEAD),
        Event.RELEASE: _transition("INFLIGHT", State.QUEUED, "holder, on stop; operator"),
        Event.SUSPEND: _transition("INFLIGHT", State.QUEUED, "holder, a run of a workflow"),
        Event.EXPIRE: _transition("INFLIGHT", State.QUEUED, "reaper", exhausted=State.DEAD),
        Event.REVIVE: _transition("DEAD", State.INFLIGHT, "consumer, by job id"),
        Event.REDRIVE: _transition("DEAD", State.QUEUED, "operator"),
        Event.KILL: _transition("QUEUED INFLIGHT", State.DEAD, "operator"),
        Event.RESCHEDULE: _transition("QUEUED", State.QUEUED, "operator"),
        Event.DELETE: _transition("DEAD", None, "operator, protocol"),
    }
)
"""Transitions by event. Only publish is not among them, which creates a job in the state QUEUED."""

LIVE: Final = frozenset({State.QUEUED, State.INFLIGHT, State.DEAD})
"""States of jobs that have a row in the job table."""

SETTLED: Final = frozenset({State.DELIVERED, State.DEAD})
"""States of jobs that have a row in the archive. A DEAD job has a row in the job table as well."""
