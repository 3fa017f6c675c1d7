"""State machine of one run, without I/O: names and numbers of steps, replay, suspension, checks.

Sync and async runs share it. It decides what a call of a run means: a step that has ended, whose
result the call returns, or a step that begins now.
"""

import asyncio
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, Self

from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.validation import encodable
from pulljobs.errors import LONGEST_DELAY, StepMismatch, TooManySteps

MAX_STEPS: Final = 10_000
LONGEST_NAME: Final = 200

FOREVER: Final = timedelta(days=36_500)
"""Time until a run is due that waits without a limit."""

StepKey = tuple[str, int]
"""Name of a step and its number among the steps of that name, from 1 on."""


@dataclass(slots=True, kw_only=True)
class Step:
    """Step of a run, stored or about to begin."""

    name: str
    number: int
    position: int
    kind: str
    function: str = ""
    is_ended: bool = False
    is_stored: bool = False
    result: Any = None
    failure: Mapping[str, Any] | None = None
    batch_id: int | None = None
    children: list[int] | None = None
    due: float | None = None
    """Time of this process's monotonic clock at which it is due, or None."""

    @property
    def key(self) -> StepKey:
        return self.name, self.number

    def __str__(self) -> str:
        return f"{self.name!r}" if self.number == 1 else f"{self.name!r} ({self.number})"


class Suspension(BaseException):
    """BaseException that ends a claim whose run sleeps, or waits for a signal or its children.

    It is no Exception, so that `except Exception` in a workflow lets it pass. A workflow must not
    swallow it.
    """

    def __init__(
        self,
        step: Step,
        delay: timedelta,
        *,
        is_bounded: bool = True,
        waiting_for: str | None = None,
        waiting_batch: int | None = None,
    ) -> None:
        super().__init__(f"The run is suspended at {step.kind} {step}.")
        self.step, self.delay, self.is_bounded = step, delay, is_bounded
        self.waiting_for, self.waiting_batch = waiting_for, waiting_batch


class Continuation(BaseException):
    """BaseException by which `continue_as` ends a claim: the run begins with another payload."""

    def __init__(self, payload: str) -> None:
        super().__init__("The run begins again with another payload.")
        self.payload = payload


class Interruption(BaseException):
    """BaseException that ends a claim in the middle of a step, which the next claim calls again.

    It is no Exception, so that a workflow does not take it for a failure of the step.
    """

    def __init__(self, cause: Settlement | Exception) -> None:
        """`cause` is the outcome of the claim, or the error that fails the attempt."""
        super().__init__(cause if isinstance(cause, Exception) else cause.error)
        self.cause = cause


Ending = Suspension | Continuation | Interruption


class FailedStep(NamedTuple):
    """Step that raised an exception, which is stored if the workflow catches it and goes on."""

    step: Step
    error: Exception
    seconds: float
    caller: object
    """Task or thread that called the step."""


@dataclass(slots=True)
class Replay:
    """Progress of the code through the steps of a run, during one claim."""

    stored: dict[StepKey, Step]
    ending: Ending | None = None
    """Exception that ends the claim, once it was raised. Every later call raises it again."""
    is_swallowed: bool = False
    """True if the code caught the ending and went on to another call of the run."""
    _ended_in: object = None
    """Task or thread in which the ending was raised. Others may go on for a while."""
    failed: list[FailedStep] = field(default_factory=list)
    """Failures that are not stored yet."""
    main: object = None
    """Task or thread that runs the function of the workflow."""
    _asked: Counter[str] = field(default_factory=Counter)
    _ended: Counter[str] = field(default_factory=Counter)
    _keyed: set[str] = field(default_factory=set)
    """Names whose number the code has asked for, to make an idempotency key."""
    _callers: dict[str, tuple[str, str]] = field(default_factory=dict)
    _position: int = 0

    @classmethod
    def of_steps(cls, steps: Iterable[Step]) -> Self:
        """Return the replay of a run with these stored steps."""
        stored = {step.key: step for step in steps}
        last = max((step.position for step in stored.values()), default=0)
        return cls(stored, _position=last)

    def begin(self, name: str, kind: str, function: str = "") -> Step:
        """Return the next step of that name: a stored one, or a new one.

        Raise ValueError for a wrong name, StepMismatch if this claim used it for another function,
        or if the stored step is of another kind, and TooManySteps.
        """
        self._check_open()
        check_name(name)
        self._check_caller(name, kind, function)
        self._asked[name] += 1
        number = self._asked[name]
        if name in self._keyed:
            self._check_alone(name)
        if (step := self.stored.get((name, number))) is not None:
            _check_kind(step, kind)
            return step
        if self._position >= MAX_STEPS:
            raise TooManySteps(MAX_STEPS)
        self._position += 1
        return Step(name=name, number=number, position=self._position, kind=kind, function=function)

    def end(self, step: Step) -> None:
        """Note that a step has ended, so that `number_now` returns the number after it."""
        self._ended[step.name] += 1

    def fail(self, step: Step, error: Exception, seconds: float) -> None:
        """Note that a step has failed: its failure is stored if the workflow goes on."""
        self.failed.append(FailedStep(step, error, seconds, find_caller()))
        self.end(step)

    def take_caught(self) -> list[FailedStep]:
        """Remove and return the failures that the code has caught, as its present call shows.

        A task may go on while the failure of another task is on its way to the code that awaits it.
        """
        if not self.failed:
            return []
        caller = find_caller()
        caught = [each for each in self.failed if self._has_caught(caller, each)]
        self.failed = [each for each in self.failed if each not in caught]
        return caught

    def _has_caught(self, caller: object, failed: FailedStep) -> bool:
        if caller is failed.caller:
            return True
        # asyncio notes in this attribute that no code has awaited the failure of a task yet.
        is_unseen = getattr(failed.caller, "_log_traceback", False)
        return caller is self.main and not is_unseen

    def number_now(self, name: str) -> int:
        """Return which call of a step, counted from 1, runs now, or else comes next.

        Raise StepMismatch if several steps of that name run at the same time, now or later.
        """
        check_name(name)
        self._keyed.add(name)
        self._check_alone(name)
        return self._ended[name] + 1

    def raise_ending(self, ending: Ending) -> Any:
        """Raise the exception that ends the claim, and let every later call raise it again."""
        self._check_open()
        self.ending, self._ended_in = ending, find_caller()
        raise ending

    def check_swallowed(self) -> None:
        """Raise `ending` again if the code caught it and went on, and set `is_swallowed`."""
        ending = self.ending
        if ending is not None and self._ended_in is find_caller() and not _is_handled(ending):
            self.is_swallowed = True
            raise ending

    def _check_open(self) -> None:
        """Raise again any exception that has ended the claim, so that no further step begins."""
        self.check_swallowed()
        if self.ending is not None:
            raise self.ending

    def unknown(self) -> list[Step]:
        """Return the stored steps that the code did not ask for, in their order."""
        missing = [step for step in self.stored.values() if step.number > self._asked[step.name]]
        return sorted(missing, key=lambda step: step.position)

    def _check_alone(self, name: str) -> None:
        """Raise StepMismatch if several steps of a name, with one idempotency key, run now."""
        if self._asked[name] > self._ended[name] + 1:
            raise StepMismatch(
                f"Several steps {name!r} run at the same time, and run.key({name!r}) would be the "
                "same for all of them: give each its own name."
            )

    def _check_caller(self, name: str, kind: str, function: str) -> None:
        first = self._callers.setdefault(name, (kind, function))
        if first != (kind, function):
            raise StepMismatch(
                f"The name {name!r} belongs to {_caller(*first)}, and {_caller(kind, function)} "
                "uses it again: give each its own name."
            )


def find_caller() -> object:
    """Return the asyncio task, or else the thread, that runs this call."""
    try:
        return asyncio.current_task()
    except RuntimeError:  # There is no event loop in this thread.
        return threading.current_thread()


def _is_handled(ending: Ending) -> bool:
    """Return True while the caller is in an `except` or `finally` block that handles the ending."""
    error = sys.exception()
    while error is not None and error is not ending:
        error = error.__context__
    return error is ending


def check_name(name: object) -> None:
    """Raise ValueError for a name that neither a step nor a signal can have."""
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_NAME or not encodable(name):
        raise ValueError(
            f"A name must be text of 1 to {LONGEST_NAME} characters without NUL, not {name!r:.300}."
        )


def check_delay(name: str, delay: object) -> timedelta:
    """Return a delay, or 0 for a negative one. Raise TypeError, or ValueError if it is too long."""
    if not isinstance(delay, timedelta):
        raise TypeError(f"The time of {name!r} must be a timedelta, not {delay!r}.")
    if delay > LONGEST_DELAY:
        raise ValueError(f"The time of {name!r} must be at most 100 years, not {delay!r}.")
    return max(delay, timedelta())


def name_function(function: Callable[..., Any]) -> str:
    """Return module and name of a function, cut to its last `LONGEST_NAME` characters."""
    while isinstance(function, partial):
        function = function.func
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    name = getattr(function, "__qualname__", None) or kind.__qualname__
    return f"{module}.{name}"[-LONGEST_NAME:]


def _check_kind(step: Step, kind: str) -> None:
    if step.kind != kind:
        raise StepMismatch(
            f"The run has {step} as {_caller(step.kind)}, and its code asks for {_caller(kind)}: "
            "keep the meaning of a name while runs have it (`manage.py pulljobs workflows check`)."
        )


def _caller(kind: str, function: str = "") -> str:
    article = "an" if kind.startswith("a") else "a"
    return f"the {kind} of {function}" if function else f"{article} {kind}"
