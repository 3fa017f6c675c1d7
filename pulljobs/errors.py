"""Errors that pulljobs raises.

    PulljobsError
    |-- ConfigurationError      a setting, flag or registration that can't work
    |-- PublishError            a message that was refused, so that nothing was written
    |   |-- InvalidMessage      an argument out of its bounds
    |   |-- UnknownChannel      it does not exist
    |   |-- PayloadTooLarge     above MAX_PAYLOAD_BYTES
    |   |-- DuplicateMessage    the client message id is taken
    |   |-- KeyFull             a consumer accepts no more jobs of that key
    |   |-- DuplicateSchedule   a message of that id is scheduled already
    |   `-- ScheduledTooSoon    less than MIN_SCHEDULE_DELAY ahead
    |-- InvalidRegistration     a field of a channel, a producer or a consumer out of its bounds
    |-- InvalidSchedule         a rule or an option of a schedule that can't work
    |-- UnknownSchedule         no schedule has that name
    |-- ScheduleExists          another schedule has that name
    |-- WorkflowError           an operation on a run that can't be done
    |   |-- StepMismatch        the name of a step belongs to something else
    |   |-- StepFailed          a step failed earlier, and its exception is unknown now
    |   |-- TooManySteps        more than 10,000
    |   |-- WaitTimedOut        no signal came in time
    |   |-- ChildFailed         a child job of a run is DEAD
    |   `-- SuspensionSwallowed the code of a workflow caught the end of its claim
    |-- UnknownRun              no job has that id
    |-- RunEnded                the run is DELIVERED or DEAD
    |-- UnknownJob              neither live nor in the archive
    |-- UnknownBatch            no batch has that id
    |-- BatchEnded              the batch is complete or cancelled, and takes no members
    |-- LeaseLost               the lease no longer holds the job
    |-- LakeError               a command or query over the lake or in Spark that can't go on
    |   `-- StreamTaken         another query runs this stream
    `-- HandlerSignal           raised by handlers, never logged as an error
        |-- Retry
        |-- Snooze
        |-- Discard
        `-- AlreadySettled      the handler has written its outcome

A mistake of the caller raises. A race does not: if another process has changed a job in the
meantime, a verb such as `finish` leaves the job alone, and its result says so.
"""

import copyreg
from datetime import timedelta
from typing import Any, Final, Literal

LONGEST_DELAY: Final = timedelta(days=36_500)
"""Longest delay of a job: Python can't represent times beyond the year 9999."""
LONGEST_NOTE: Final = 200
"""Largest number of characters of the note in a progress report of a handler."""


class PulljobsError(Exception):
    """Base of all errors of pulljobs. They can be pickled, so a process pool can pass them on."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default pickle calls the class with the text in place of its arguments.
        return copyreg.__newobj__, (type(self),), {**vars(self), "args": self.args}  # type: ignore[attr-defined]  # missing in its stub


class ConfigurationError(PulljobsError):
    """Error for a setting, flag or registration that can't work."""


class PublishError(PulljobsError):
    """Base of the errors by which a publish is refused. Nothing was written."""


class InvalidMessage(PublishError, ValueError):
    """Error for an argument of a publish that is out of its bounds."""


class UnknownChannel(PublishError, LookupError):
    """Error for a publish to a channel that does not exist."""

    def __init__(self, channel: str) -> None:
        super().__init__(
            f"There is no channel {channel!r}: create it first, in the admin or, where a handler "
            "names it, by `manage.py pulljobs syncconsumers`."
        )
        self.channel = channel


class PayloadTooLarge(PublishError, ValueError):
    """Error for a payload above `MAX_PAYLOAD_BYTES`."""


class DuplicateMessage(PublishError):
    """Error for a client message id that is taken. `first` is the id of the message that has it."""

    def __init__(self, message_id: str, first: int) -> None:
        super().__init__(
            f"A message {message_id!r} was published on this channel inside its dedupe window: "
            "publish under another id, or treat it as sent."
        )
        self.message_id = message_id
        self.first = first


class DuplicateSchedule(PublishError):
    """Error for a client message id that another scheduled message of the channel has."""

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"A message {message_id!r} was scheduled on this channel already: schedule under "
            "another id, or treat it as sent."
        )
        self.message_id = message_id


class ScheduledTooSoon(PublishError, ValueError):
    """Error for a message that is scheduled less than `MIN_SCHEDULE_DELAY` ahead."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"A message can be scheduled for {seconds:g} seconds ahead or later.")


class KeyFull(PublishError):
    """Error for a key of which a consumer takes no more jobs now (`max_queued_per_key`).

    `in_the_way` is the id of the message of the newest job of the key.
    """

    def __init__(self, key: str, consumer: str, in_the_way: int) -> None:
        super().__init__(
            f"Consumer {consumer!r} takes no more jobs of key {key!r} now: publish again when a "
            "job of the key is done, or raise the consumer's max_queued_per_key."
        )
        self.key = key
        self.consumer = consumer
        self.in_the_way = in_the_way


class InvalidRegistration(PulljobsError, ValueError):
    """Error for a name or field of a channel, producer, consumer or limit group that is invalid."""


class InvalidSchedule(PulljobsError, ValueError):
    """Error for a schedule that can't work. `field` is the argument with the mistake."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class UnknownSchedule(PulljobsError, LookupError):
    """Error for a schedule that does not exist."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no schedule {name!r}: `manage.py pulljobs schedules list` lists them."
        )
        self.name = name


class ScheduleExists(PulljobsError):
    """Error for a new schedule whose name is taken."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is a schedule {name!r} already: update it, or choose another name."
        )
        self.name = name


class WorkflowError(PulljobsError):
    """Error for an operation on a run that can't be done, and base class of more precise errors."""


class StepMismatch(WorkflowError):
    """Error for a name that a run gives to different steps, or to several at the same time."""


class StepFailed(WorkflowError):
    """Error for a step that failed in an earlier claim, if its exception can't be restored."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"Step {name!r} failed: {text}")
        self.name = name


class TooManySteps(WorkflowError):
    """Error for a step beyond the largest number of steps of a run."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The run has {limit} steps, and may have no more: end it with run.continue_as(payload)"
            ", which begins it again without them."
        )


class WaitTimedOut(WorkflowError, TimeoutError):
    """Error for a signal that a run waited for, and that did not come in time."""

    def __init__(self, name: str) -> None:
        super().__init__(f"No signal {name!r} came in time.")
        self.name = name


class ChildFailed(WorkflowError):
    """Error for a child job that is DEAD or deleted, raised where its run waits for the result.

    `job_id` is the public id of the child, `reason` a `states.Reason`, or "deleted" for a child of
    which nothing is left. It may have been delivered.
    """

    def __init__(self, job_id: str, reason: str | None, error: str | None) -> None:
        text = f"is DEAD ({reason}): " + (error or "").partition("\n")[0]
        if reason == "deleted":
            text = "has ended, and its outcome was deleted by RETENTION or an operator."
        super().__init__(f"Child {job_id} {text}")
        self.job_id, self.reason, self.error = job_id, reason, error


class SuspensionSwallowed(WorkflowError):
    """Error for code of a workflow that caught the exception which suspends its run."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} The workflow caught this and went on: let it pass, with `except Exception` in "
            "place of a bare `except`, and without `return` in `finally`. Then redrive the run."
        )


class UnknownRun(PulljobsError, LookupError):
    """Error for a run that does not exist."""

    def __init__(self, run: object) -> None:
        super().__init__(
            f"There is no run {run!r}: its id is that of its job, whose first claim begins it."
        )
        self.run = run


class RunEnded(PulljobsError):
    """Error for a signal to a run that is DELIVERED or DEAD."""

    def __init__(self, run: str, state: str) -> None:
        advice = "Redrive it" if state == "DEAD" else "Publish its message again for another run"
        super().__init__(
            f"Run {run} is {state}: it takes no more signals. {advice}, or leave the signal out."
        )
        self.run, self.state = run, state


class UnknownJob(PulljobsError, LookupError):
    """Error for a job that is neither live nor in the archive."""

    def __init__(self, job: int) -> None:
        super().__init__(f"There is no job {job}, neither live nor in the archive.")
        self.job = job


class UnknownBatch(PulljobsError, LookupError):
    """Error for a batch that does not exist, or that was deleted because of its age."""

    def __init__(self, batch: str) -> None:
        super().__init__(
            f"There is no batch {batch}: `manage.py pulljobs batches list` lists them."
        )
        self.batch = batch


class BatchEnded(PulljobsError):
    """Error for members of a batch that is complete or cancelled. Nothing was published."""

    def __init__(self, batch: str, state: str) -> None:
        super().__init__(
            f"The batch {batch} is {state} and takes no members: make another batch, or publish "
            "from a member, before it ends."
        )
        self.batch = batch


class LeaseLost(PulljobsError):
    """Error for a job that is lost. The caller must stop working on the job."""

    def __init__(self, job: int | str) -> None:
        super().__init__(f"The lease of job {job} is lost: stop working on it.")
        self.job = job


class LakeError(PulljobsError):
    """Error for a command or query over the lake, or in Spark, that can't go on."""


class StreamTaken(LakeError):
    """Error for a stream of Spark that another query runs already."""

    def __init__(self, stream: str, owner: str | None = None) -> None:
        super().__init__(
            f"Stream {stream!r} is run by {owner or 'another query'}: stop that query first, or "
            "give this stream another name."
        )
        self.stream = stream


class HandlerSignal(PulljobsError):
    """Base of the exceptions by which a handler chooses an outcome, never logged as errors."""


def _check_delay(after: timedelta) -> None:
    """Raise TypeError or ValueError unless `after` is a timedelta of at most 100 years."""
    if not hasattr(after, "total_seconds"):
        raise TypeError(f"after must be a timedelta, not {after!r}.")
    if after > LONGEST_DELAY:
        raise ValueError(f"after must be at most 100 years, not {after!r}.")


class Retry(HandlerSignal):
    """Exception that retries the job, after the consumer's own delay or after the given one.

    Without retries left, the job is DEAD. With `backoff=False` the consumer's circuit does not
    count it as a failure. With `throttle=True` no job of the consumer is claimed for the given
    delay, with `throttle="key"` no job of its key if the consumer's keys take turns.
    """

    def __init__(
        self,
        *,
        after: timedelta | None = None,
        reason: str = "",
        backoff: bool = True,
        throttle: bool | Literal["key"] = False,
    ) -> None:
        if after is not None:
            _check_delay(after)
        if throttle not in (True, False, "key"):
            raise ValueError(f'throttle must be True, False or "key", not {throttle!r}.')
        if throttle and after is None:
            raise ValueError("throttle=True needs after: the time in which nothing is claimed.")
        super().__init__(reason or "retry")
        self.after, self.backoff, self.throttle = after, backoff, throttle
        self.reason = str(self)


class Snooze(HandlerSignal):
    """Exception that queues the job again after a time, because it can't be done yet.

    The job is not charged, so it can be snoozed without a limit. Its age is in `job.published_at`.
    """

    def __init__(self, after: timedelta, reason: str = "") -> None:
        _check_delay(after)
        super().__init__(reason or "snooze")
        self.after, self.reason = after, str(self)


class Discard(HandlerSignal):
    """Exception that rejects the job: it is DEAD, with `reason` as its error."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AlreadySettled(HandlerSignal):
    """Signal that the handler has written the outcome itself, as a run does when it suspends."""

    def __init__(self) -> None:
        super().__init__("The outcome is written.")
