"""Errors that pulljobs raises.

    PulljobsError
    |-- ConfigurationError      a setting, flag or registration that can't work
    |-- PublishError            a message that was refused; nothing was written
    |   |-- InvalidMessage      an argument out of its bounds
    |   |-- UnknownChannel      nobody made it
    |   |-- PayloadTooLarge     above MAX_PAYLOAD_BYTES
    |   |-- DuplicateMessage    carries the id of the first one
    |   |-- KeyFull             a consumer takes no more jobs of that key
    |   |-- DuplicateSchedule   one of that id was scheduled already
    |   `-- ScheduledTooSoon    less than MIN_SCHEDULE_DELAY ahead
    |-- InvalidRegistration     a field of a channel, a producer or a consumer out of its bounds
    |-- UnknownJob              neither live nor in the archive
    |-- InvalidTransition       the job's state does not allow what was asked
    |-- LeaseLost               the lease that a write was made under holds the job no more
    |-- LakeError               a run over the lake or in Spark that can't go on
    |   `-- StreamTaken         another query runs this stream
    `-- HandlerSignal           how a handler speaks; never logged as an error
        |-- Retry
        `-- Discard

Mistakes of the caller are raised. Races are not: a verb that finds neither the state nor the
lease it was asked to leave changes nothing and says so in what it returns.
"""

from datetime import timedelta
from typing import Final

LONGEST_DELAY: Final = timedelta(days=36_500)
"""How far ahead a job may be due: what lies beyond year 9999 nobody could read."""


class PulljobsError(Exception):
    """The base of all; catch this to catch anything of pulljobs."""


class ConfigurationError(PulljobsError):
    pass


class PublishError(PulljobsError):
    pass


class InvalidMessage(PublishError, ValueError):
    pass


class UnknownChannel(PublishError, LookupError):
    def __init__(self, channel: str) -> None:
        super().__init__(
            f"There is no channel {channel!r}: create it first, in the admin or, where a handler "
            "names it, by `manage.py pulljobs syncconsumers`."
        )
        self.channel = channel


class PayloadTooLarge(PublishError, ValueError):
    pass


class DuplicateMessage(PublishError):
    """`first` is the id of the message that bears this client message id already."""

    def __init__(self, message_id: str, first: int) -> None:
        super().__init__(
            f"A message {message_id!r} was published on this channel inside its dedupe window: "
            "publish under another id, or treat it as sent."
        )
        self.message_id = message_id
        self.first = first


class DuplicateSchedule(PublishError):
    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"A message {message_id!r} was scheduled on this channel already: schedule under "
            "another id, or treat it as sent."
        )
        self.message_id = message_id


class ScheduledTooSoon(PublishError, ValueError):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"A message can be scheduled for {seconds:g} seconds ahead or later.")


class KeyFull(PublishError):
    """`in_the_way` is the id of the newest message that fills it."""

    def __init__(self, key: str, consumer: str, in_the_way: int) -> None:
        super().__init__(
            f"Consumer {consumer!r} takes no more jobs of key {key!r} now: publish again when one "
            "of them is done, or raise the consumer's max_queued_per_key."
        )
        self.key = key
        self.consumer = consumer
        self.in_the_way = in_the_way


class InvalidRegistration(PulljobsError, ValueError):
    pass


class UnknownJob(PulljobsError, LookupError):
    def __init__(self, job: int) -> None:
        super().__init__(f"There is no job {job}, neither live nor in the archive.")
        self.job = job


class InvalidTransition(PulljobsError):
    pass


class LeaseLost(PulljobsError):
    def __init__(self, job: int) -> None:
        super().__init__(f"The lease of job {job} is lost: stop working on it.")
        self.job = job


class LakeError(PulljobsError):
    pass


class StreamTaken(LakeError):
    def __init__(self, stream: str, owner: str | None = None) -> None:
        super().__init__(
            f"Stream {stream!r} is run by {owner or 'another query'}: stop that one first, or give "
            "this one a name of its own."
        )
        self.stream = stream


class HandlerSignal(PulljobsError):
    pass


class Retry(HandlerSignal):
    """Try again, after the consumer's own delay or after the given one.

    With `backoff=False` it is no failure: the consumer's circuit does not count it.
    """

    def __init__(
        self, *, after: timedelta | None = None, reason: str = "", backoff: bool = True
    ) -> None:
        if after is not None and not hasattr(after, "total_seconds"):
            raise TypeError(f"after must be a timedelta, not {after!r}.")
        if after is not None and after > LONGEST_DELAY:
            raise ValueError(f"after must be at most 100 years, not {after!r}.")
        super().__init__(reason or "retry")
        self.after, self.backoff = after, backoff
        self.reason = str(self)


class Discard(HandlerSignal):
    """Give the job up: DEAD, with this text as its error."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
