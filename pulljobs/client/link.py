"""Link to one broker, on which requests wait during an outage and are then sent again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from pulljobs.client import bodies, log
from pulljobs.client.bodies import Limits
from pulljobs.client.calls import LATER, Answer, Call, checked
from pulljobs.client.connecting import without_login
from pulljobs.client.errors import NotFound, NotPullable, Unreachable
from pulljobs.client.flows import GRACE, MOST_OUTCOMES
from pulljobs.client.sending import AsyncSender
from pulljobs.client.strategies import Delay


@dataclass(slots=True)
class Request:
    """Request on a link. It is `in_doubt` if the broker may have acted on it without an answer."""

    call: Call
    in_doubt: bool = False


class Link:
    """Link to a broker, on which requests wait while it is down.

    It is down at first, and after a request without an answer or with a status of 5xx. One task
    then tries to read the limits of the broker. After an answer, even a refusal, the link is up.
    """

    def __init__(
        self,
        sender: AsyncSender,
        base_url: str,
        path: str,
        again: Delay | None,
        on_change: Callable[[bool], None],
    ) -> None:
        """Make a link, down until `connect` is called, to the consumer at a URL path of a broker.

        `again(n)` returns the seconds before the n-th new attempt to connect. If `again` is None,
        each attempt needs a call of `connect`, but for the first after a lost answer. `on_change`
        is called with True when the link is up, and with False when it is down.
        """
        self.shown_url, self._path = without_login(base_url), path
        self._sender, self._again, self._on_change = sender, again, on_change
        self.limits = Limits()
        self._error: Exception | None = None
        """Error that ended the link for good."""
        self._up = asyncio.Event()
        self._failures = 0
        """Failures since the last answer."""
        self._connecting: asyncio.Task[None] | None = None

    @property
    def is_up(self) -> bool:
        """True if the link is up, so that requests do not wait."""
        return self._up.is_set()

    @property
    def is_discovered(self) -> bool:
        """True if a lookup has named the broker, and has to name it again when it was lost."""
        return self._again is None

    def connect(self, pause: float = 0.0) -> None:
        """Connect after a pause in seconds, in a task, unless the link is up or that task runs."""
        if not self.is_up and (self._connecting is None or self._connecting.done()):
            self._connecting = asyncio.create_task(self._connect(pause))

    @property
    def most_outcomes(self) -> int:
        """Largest number of outcomes or renewals in one request."""
        return min(MOST_OUTCOMES, self.limits.max_batch)

    def make_request(self, verb: str, body: bytes, seconds: float = 2 * GRACE) -> Request:
        """Return a request to the consumer. `seconds` is how long the broker may take to answer."""
        return Request(Call("POST", f"{self._path}/{verb}", body, seconds))

    async def ask(self, request: Request, *, may_give_up: bool = False) -> Answer:
        """Send a request, again after each outage, until there is an answer.

        The request's `in_doubt` is then True if the broker may have acted on an earlier attempt.
        Raise Refused, or the error that has ended the link for good, such as that of a wrong URL.
        With `may_give_up`, raise Unreachable when the broker has certainly not acted on it.
        """
        while True:
            await self._up.wait()
            if self._error is not None:
                raise self._error
            before, request.in_doubt = request.in_doubt, True
            try:
                answer = await self._send(request.call)
            except Unreachable as trouble:
                request.in_doubt = before or trouble.was_sent
                await self._after(trouble)
                if may_give_up and not request.in_doubt:
                    raise
            else:
                request.in_doubt, self._failures = before, 0
                return answer

    async def has_new_limits(self) -> bool:
        """Read the broker's limits again, after it has refused a request as too large.

        Return True if they have changed, so that a smaller request may be accepted.
        """
        before, info = self.limits, Call("GET", f"{self._path}/info", b"", GRACE)
        limits = bodies.limits(await self.ask(Request(info)))
        self.limits = replace(limits, clock_ahead=self.limits.clock_ahead)
        return self.limits != before

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        await self._sender.close()

    async def _send(self, call: Call) -> Answer:
        """Send a request once and return its answer, if it is a success.

        A server that a lookup named, and that answers like no broker, counts as away: its address
        may be that of another server by now, and the other brokers still have jobs.
        """
        answer = await self._sender.send(call)
        try:
            checked(answer)
            if self.is_discovered:
                answer.json()
        except NotFound as error:
            if self.is_discovered and error.code is None:
                raise Unreachable(str(error), was_sent=False) from error
            raise
        return answer

    async def _after(self, trouble: Unreachable) -> None:
        if trouble.status in LATER:  # only this request has to wait
            await asyncio.sleep(max(trouble.retry_after, 1.0))
        elif self.is_up:
            self._failures += 1
            self._up.clear()
            self._on_change(False)
            log.lost_broker(self.shown_url, trouble)
            self._connect_after(trouble)

    def _connect_after(self, trouble: Unreachable) -> None:
        """Connect again: at once if the first failure is a lost answer, else after a delay.

        Do nothing if a delay is needed, but the link was made without `again`.
        """
        if trouble.was_lost and self._failures == 1:
            self.connect()
        elif self._again is not None:
            self.connect(max(self._again(self._failures), trouble.retry_after))

    async def _connect(self, pause: float) -> None:
        await asyncio.sleep(pause)
        while (trouble := await self._reach()) is not None:
            self._failures += 1
            if self._again is None:
                return
            await asyncio.sleep(max(self._again(self._failures), trouble.retry_after))

    async def _reach(self) -> Unreachable | None:
        """Try once to connect. Return the error if the broker is away, or None if the link is up.

        It is away without an answer, or with one to try later. A refusal brings the link up, and
        most refusals are then raised by all requests.
        """
        try:
            answer = checked(await self._sender.send(Call("GET", f"{self._path}/info", b"", GRACE)))
            self.limits = bodies.limits(answer)
        except Unreachable as trouble:
            log.still_away(self.shown_url, trouble)
            return trouble
        except NotFound:
            log.without_limits(self.shown_url)
        except NotPullable:
            log.not_pullable(self.shown_url)
        except Exception as error:  # or the client would wait for this broker silently
            self._error = error
        self._up.set()
        self._on_change(True)
        return None
