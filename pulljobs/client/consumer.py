"""Consumer that pulls messages and calls a handler for each until it is stopped."""

import asyncio
import signal
import threading
from collections import Counter
from collections.abc import Sequence

from pulljobs.client.argument_checks import check_counts
from pulljobs.client.connecting import (
    Connection,
    Subscription,
    base_of,
    check_subscription,
    urls_of,
)
from pulljobs.client.handling import Handler, Handling
from pulljobs.client.session import ConsumerOptions, Session
from pulljobs.client.strategies import RECONNECT, REQUEUE, Backoff, Delay
from pulljobs.errors import ConfigurationError


class Consumer:
    """Consumer that pulls messages and calls a handler with each until it is stopped.

    The handler gets a `Message`, or an `AsyncMessage` if it is async. If it returns, the job is
    delivered. If it raises, the job is retried: `Retry` chooses the delay. But `Snooze` releases
    the job, and `Discard` makes it DEAD. The handler may also settle the message by its methods, or
    `detach` it to settle it later. A consumer runs once.
    """

    def __init__(
        self,
        handler: Handler,
        base_urls: str | Sequence[str] = (),
        *,
        subscription: Subscription,
        max_in_flight: int = 1,
        concurrency: int = 1,
        max_attempts: int = 6,
        on_giving_up: Handler | None = None,
        on_stop: Handler | None = None,
        requeue_delay: Delay | None = REQUEUE,
        backoff: Backoff | None = None,
        reconnect: Delay = RECONNECT,
        auto_renew: bool = False,
        lookup_urls: str | Sequence[str] = (),
        lookup_interval: float = 60.0,
        flush_interval: float = 0.1,
        graceful_timeout: float = 15.0,
        sample_rate: float = 1.0,
        shared: bool = True,
        connection: Connection | None = None,
    ) -> None:
        """Check the arguments. Times are in seconds.

        At most `max_in_flight` messages are pulled and not settled, and `concurrency` handlers run
        at a time. After `max_attempts` failures of a message, `on_giving_up` is called and the job
        is DEAD. The guide on the Python client explains the other arguments.
        """
        check_subscription(subscription)
        check_counts(0, max_in_flight=max_in_flight)
        _check_sample(sample_rate, shared=shared)
        handling = Handling(handler, max_attempts, on_giving_up, requeue_delay, sample_rate)
        handling = handling.traced(subscription.channel, subscription.consumer)
        self._options = ConsumerOptions(
            handling=handling,
            base_urls=_once(base_urls),
            subscription=subscription,
            concurrency=concurrency,
            on_stop=on_stop,
            requeue_delay=requeue_delay,
            backoff=Backoff() if backoff is None else backoff,
            reconnect=reconnect,
            auto_renew=auto_renew,
            lookup_urls=_once(lookup_urls),
            lookup_interval=lookup_interval,
            flush_interval=flush_interval,
            graceful_timeout=graceful_timeout,
            connection=connection or Connection(),
        )
        self._max_in_flight = max_in_flight
        self._session: Session | None = None
        self._stopped = False
        self.counts: Counter[str] = Counter()
        """Numbers of messages that were `received` or `lost`, or settled, such as `delivered`."""

    def run(self) -> None:
        """Run until `stop`, SIGTERM or SIGINT. A further signal ends the process at once.

        Raise NotAllowed, BadRequest, NotFound or NotPullable if the broker refuses the requests,
        and an error of `on_stop`. Signals stop it only in the main thread.
        """
        asyncio.run(self._run())

    async def serve(self) -> None:
        """Run on the current event loop until `stop`, without signal handlers.

        If its task is cancelled, it stops in the same way and then raises CancelledError. Another
        cancellation ends it at once. Otherwise raise the errors that `run` raises.
        """
        session = self._session = Session(self._options, self._max_in_flight, self.counts, self)
        if self._stopped:
            session.stop()
        await session.run()

    def stop(self) -> None:
        """Begin to stop: pull no more, release waiting messages, and let handlers end.

        Any thread may call this. It returns at once.
        """
        self._stopped = True
        if self._session is not None:
            self._session.room.stopping = True  # no handler is called from now on
            self._session.call(self._session.stop)

    def set_max_in_flight(self, limit: int) -> None:
        """Change the limit of held messages, from any thread. With 0 nothing more is pulled."""
        check_counts(0, max_in_flight=limit)
        self._max_in_flight = limit
        if self._session is not None:
            self._session.call(self._session.room.resize, limit)

    @property
    def max_in_flight(self) -> int:
        """Largest number of messages held at once: pulled, but their outcome not confirmed yet."""
        return self._max_in_flight

    @property
    def held(self) -> int:
        """Number of pulled messages whose outcome no broker has confirmed yet."""
        return self._session.room.held if self._session else 0

    @property
    def is_starved(self) -> bool:
        """True if, for one of the brokers, handlers have at least 85 % of the unsettled messages.

        A handler that collects messages for a batch should then process the batch, because few
        messages can come before it settles some.
        """
        return self._session is not None and self._session.is_starved

    async def _run(self) -> None:
        if threading.current_thread() is threading.main_thread():
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, number)
        await self.serve()

    def _signalled(self, number: int) -> None:
        if self._stopped:
            raise SystemExit(128 + number)
        self.stop()


def _once(urls: str | Sequence[str]) -> list[str]:
    """Return the base URLs in their order, each once."""
    return list(dict.fromkeys(map(base_of, urls_of(urls))))


def _check_sample(sample_rate: float, *, shared: bool) -> None:
    if not 0 < sample_rate <= 1:
        raise ConfigurationError("sample_rate must be above 0 and at most 1.")
    if sample_rate < 1 and shared:
        raise ConfigurationError(
            "sample_rate would drop messages that others of this consumer wait for: make a "
            "consumer for the sample, which gets a copy of each message, and give shared=False."
        )
