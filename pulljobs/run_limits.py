"""Limits that the payload of a job sets, in place of those of its handler and its consumer.

Tasks of Django use this: many of them, with limits of their own, share one consumer.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from pulljobs.backoff import Delays
from pulljobs.engine.outcomes import Settlement
from pulljobs.errors import LONGEST_DELAY
from pulljobs.states import Event

JITTER: Final = 0.2
"""Largest share of a delay by which it is longer or shorter, the default of consumers, too."""

_timeouts: Final = {timedelta()}
"""Time limits of all `RunLimits` of this process, and 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """Limits of one execution of a handler. None leaves a limit to the handler or the consumer."""

    max_retries: int | None = None
    delays: Delays | None = None
    timeout: timedelta | None = None

    def __post_init__(self) -> None:
        if self.timeout is not None:
            _timeouts.add(self.timeout)

    def apply(self, outcome: Settlement, retry_count: int) -> Settlement:
        """Return the outcome with these limits if it is a retry, or else unchanged.

        A delay that the handler has chosen stays. `retry_count` is the number of charged retries
        before this one.
        """
        if outcome.event is not Event.RETRY:
            return outcome
        if self.max_retries is not None:
            outcome = outcome._replace(max_retries=self.max_retries)
        if self.delays is not None and outcome.delay is None:
            outcome = outcome._replace(delay=_with_jitter(self.delays, retry_count + 1))
        return outcome


def longest_timeout() -> timedelta:
    """Return the longest time limit of the `RunLimits` made so far, 0 without any.

    Leases have to be renewable for that long.
    """
    return max(_timeouts)


def timeout_problems(timeout: object) -> Iterator[str]:
    """Yield an error message if the value is neither None nor a valid time limit of a handler."""
    if timeout is not None and not (isinstance(timeout, timedelta) and timeout > timedelta(0)):
        yield f"timeout must be a timedelta above 0, not {timeout!r}."
    elif timeout is not None and timeout > LONGEST_DELAY:
        yield f"timeout must be at most 100 years, not {timeout!r}."


def _with_jitter(delays: Delays, retry: int) -> timedelta:
    seconds = delays.before(retry) * random.uniform(1 - JITTER, 1 + JITTER)
    return timedelta(seconds=min(seconds, delays.cap))
