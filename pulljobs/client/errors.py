"""Errors that the client raises.

    pulljobs.errors.PulljobsError
    `-- ClientError
        |-- Unreachable       no answer, or only "later", for as long as it was tried
        |-- LeaseLost         the message is held no more: stop working on it; nothing was changed
        |-- NotPublished      a message that the broker would not take; says why
        `-- Refused           an answer that trying again will not change
            |-- BadRequest    what was sent is malformed, too large or above a limit
            |-- NotAllowed    a token is wrong or missing, or there is no such consumer or producer
            |-- NotFound      no such channel, or no broker at this URL
            `-- NotPullable   the consumer was deleted, or is of type push

Handlers speak by `pulljobs.errors.Retry` and `pulljobs.errors.Discard`, as in the worker. What
can't work is ConfigurationError from there, too, and what can't be sent InvalidMessage.
"""

from collections.abc import Sequence
from typing import Any

from pulljobs import errors


class ClientError(errors.PulljobsError):
    receipts: Sequence[Any] = ()
    """Of `publish_many`: what was told before this, in the order of the drafts."""


class Unreachable(ClientError):
    """`was_sent`: the broker may have taken the request; `status` None: it gave no answer."""

    def __init__(
        self,
        trouble: str,
        *,
        status: int | None = None,
        was_sent: bool = True,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(trouble)
        self.status, self.was_sent, self.retry_after = status, was_sent, retry_after

    @property
    def was_lost(self) -> bool:
        """Whether it is the answer that is missing, so that the next one may come."""
        return self.was_sent and self.status is None


class LeaseLost(ClientError, errors.LeaseLost):
    """Not fatal: go on with the next message."""

    def __init__(self, job: str) -> None:
        ClientError.__init__(self, f"The lease of job {job} is lost: stop working on it.")


class NotPublished(ClientError):
    """`status` is the broker's word: key_full, invalid or too_large."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Refused(ClientError):
    """`code` is the broker's word for programs, if it has one."""

    def __init__(self, status: int, sentence: str, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


class BadRequest(Refused):
    pass


class NotAllowed(Refused):
    pass


class NotFound(Refused):
    pass


class NotPullable(Refused):
    pass
