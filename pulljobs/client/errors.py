"""Errors that the client raises.

    pulljobs.errors.PulljobsError
    `-- ClientError
        |-- Unreachable       no answer in time, or only answers to try later
        |-- LeaseLost         the lease is lost and nothing changed: stop working on the message
        |-- NotPublished      the broker refused a message and says why
        `-- Refused           an answer that a repeat does not change
            |-- BadRequest    the request is malformed, too large or above a limit
            |-- NotAllowed    a token is wrong or missing, or there is no such consumer or producer
            |-- NotFound      no such channel, or no broker at this URL
            `-- NotPullable   the consumer was deleted, or is of type push

Handlers raise `Retry`, `Snooze` and `Discard` of `pulljobs.errors`, as in the worker. Wrong
arguments raise `pulljobs.errors.ConfigurationError`, and messages that cannot be encoded
`pulljobs.errors.InvalidMessage`.
"""

from collections.abc import Sequence
from typing import Any

from pulljobs import errors


class ClientError(errors.PulljobsError):
    """Base of all errors of the client."""

    receipts: Sequence[Any] = ()
    """Receipts of `publish_many` before this error, in the order of the drafts."""


class Unreachable(ClientError):
    """Error for a request without an answer in time, or with only answers to try later.

    `was_sent` is False if the broker has certainly not acted on the request. `status` is that of
    an answer, or None if none came. `retry_after` is the broker's wish, in seconds.
    """

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
        """True if the request may have been sent and no answer came. A repeat may help at once."""
        return self.was_sent and self.status is None


class LeaseLost(ClientError, errors.LeaseLost):
    """Error for a message whose job is lost. The caller must stop working on it."""


class NotPublished(ClientError):
    """Error for a message that the broker refused: `status` is key_full, invalid or too_large."""

    def __init__(self, status: str, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class Refused(ClientError):
    """Error for a request that the broker refused, and would refuse again.

    `status` is that of HTTP. `code` names the problem for programs, or is None.
    """

    def __init__(self, status: int, sentence: str, code: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.code = status, code


class BadRequest(Refused):
    """Error for a request that is malformed, too large or above a limit."""


class NotAllowed(Refused):
    """Error for a wrong or missing token, or an unknown consumer or producer."""


class NotFound(Refused):
    """Error for an unknown channel, or for a URL at which no broker answers."""


class NotPullable(Refused):
    """Error for a consumer that was deleted or is of type push."""
