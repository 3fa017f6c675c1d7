"""Registration of handlers: the functions that run jobs in a worker.

    # orders/pull_handlers.py, discovered in every installed app
    @handler(channel="orders", consumer="invoicing")
    def invoice(job: ClaimedJob) -> None:
        Invoice.objects.create(order_id=job.json()["order"])

A handler that returns delivers its job, and the return value is stored as the result. For another
outcome it raises `Retry`, `Snooze` or `Discard`. The ack policy decides about any other exception.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from django.utils.module_loading import autodiscover_modules

from pulljobs import limit_groups
from pulljobs.claimed_jobs import AckPolicy, ClaimedJob, Handler
from pulljobs.conf import settings
from pulljobs.engine import tracing
from pulljobs.errors import ConfigurationError
from pulljobs.models import Channel, Consumer, options
from pulljobs.models.options import is_same, name_of

__all__ = [
    "AckPolicy",
    "ClaimedJob",
    "Handler",
    "add",
    "autodiscover",
    "check",
    "handler",
    "registered",
    "subscribed",
    "sync_consumers",
    "traced",
]

Decorated = TypeVar("Decorated", bound=Callable[[ClaimedJob], Any])


def traced(handler: Handler) -> Handler:
    """Return the handler with a tracing span around each call, or unchanged if tracing is off."""
    function = tracing.handler(handler.function, handler.names, is_async=handler.is_async)
    return handler if function is handler.function else replace(handler, function=function)


_registered: dict[tuple[str, str], Handler] = {}


def handler(
    *,
    channel: str,
    consumer: str,
    ack_policy: AckPolicy = AckPolicy.NACK_ON_ERROR,
    transactional: bool = False,
    timeout: timedelta | None = None,
    on_giving_up: Callable[[ClaimedJob], Any] | None = None,
    backoff: bool = True,
    **defaults: Any,
) -> Callable[[Decorated], Decorated]:
    """Register the decorated function as the handler of that consumer's jobs.

    With `transactional` the handler runs in a transaction of the jobs' database that ends with the
    settlement: its writes and the settlement commit together, so its effects happen exactly once.
    `timeout` limits a run (None: `HANDLER_TIMEOUT`). `on_giving_up` is called once after the run
    with which a job has used up its retries or deliveries, so that it is DEAD. Its exceptions
    change nothing. With `backoff=False` failures never hold back the other jobs of the consumer.
    Other keywords are fields of the consumer (`retry_strategy`, `max_retries`, `lease_duration`,
    ...). They are used when the row of the consumer is created, and by `syncconsumers --update`.
    `limit_group` is the name of a group. Options that can't work raise ConfigurationError.
    """

    def register(function: Decorated) -> Decorated:
        add(
            Handler(
                channel=channel,
                consumer=consumer,
                function=function,
                ack_policy=ack_policy,
                transactional=transactional,
                timeout=timeout,
                on_giving_up=on_giving_up,
                backoff=backoff,
                defaults=defaults,
            )
        )
        return function

    return register


def autodiscover() -> None:
    """Import the module `pull_handlers` of every installed app, which registers its handlers."""
    autodiscover_modules("pull_handlers")


def registered() -> Iterator[Handler]:
    """Yield the registered handlers in the order of their registration."""
    yield from _registered.values()


def sync_consumers() -> list[Consumer]:
    """Create the missing channels and consumers of all handlers, and return all their consumers.

    Rows that exist are not changed.
    """
    rows = Consumer.objects.using(settings().DATABASE).select_related("channel")
    names = {handler.channel for handler in registered()}
    known = {(row.channel.name, row.name): row for row in rows.filter(channel__name__in=names)}
    return [known.get(handler.names) or subscribed(handler) for handler in registered()]


def add(new: Handler) -> None:
    """Register a handler. Raise ConfigurationError as `check`, or if its consumer has another."""
    check(new)
    known = _registered.get(new.names)
    if known is not None and not is_same(known.function, new.function):
        raise ConfigurationError(
            f"Consumer {new.consumer!r} of channel {new.channel!r} has two handlers: "
            f"{name_of(known.function)} and {name_of(new.function)}. Give one another consumer."
        )
    _registered[new.names] = new


def check(new: Handler) -> None:
    """Raise ConfigurationError if the options of the handler can't work."""
    if new.transactional and new.ack_policy is AckPolicy.ACK_FIRST:
        raise ConfigurationError(
            f"{name_of(new.function)} is transactional and ack_first: settle before the handler "
            "runs, or together with its writes, not both."
        )
    if new.transactional and new.is_async:
        raise ConfigurationError(
            f"{name_of(new.function)} is transactional and async, but a transaction belongs to one "
            "thread: make it a plain function, or leave out transactional."
        )
    name, keywords = name_of(new.function), handler.__kwdefaults__ or ()
    options.check_flags(name, transactional=new.transactional, backoff=new.backoff)
    options.check(name, new.names, new.defaults, keywords, new.timeout, new.on_giving_up)


def subscribed(handler: Handler) -> Consumer:
    """Return the row of a handler's consumer. Create it and its channel if they are missing."""
    rows = Consumer.objects.using(settings().DATABASE)
    channel, _created = Channel.objects.using(rows.db).get_or_create(name=handler.channel)
    consumer = rows.filter(channel=channel, name=handler.consumer).first()
    if consumer is None:
        consumer, _created = rows.get_or_create(
            channel=channel,
            name=handler.consumer,
            defaults=limit_groups.row_fields(handler.defaults),
        )
    return consumer
