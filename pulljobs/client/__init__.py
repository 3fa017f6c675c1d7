"""Client that pulls and publishes over HTTP without Django: `pip install "pulljobs[client]"`.

Consumer            pulls messages and runs a handler for each
PullConsumer        fetches messages on request, AsyncPullConsumer on an event loop
Producer            publishes messages, AsyncProducer on an event loop

A broker is a server of the HTTP API of pulljobs. `python -m pulljobs.client` is the command line.
"""

from pulljobs.client.bodies import Draft, Limits, Receipt
from pulljobs.client.connecting import Connection, Subscription
from pulljobs.client.consumer import Consumer
from pulljobs.client.errors import (
    BadRequest,
    ClientError,
    LeaseLost,
    NotAllowed,
    NotFound,
    NotPublished,
    NotPullable,
    Refused,
    Unreachable,
)
from pulljobs.client.messages import AsyncMessage, Message
from pulljobs.client.publishing import AsyncProducer, Producer
from pulljobs.client.pulling import AsyncPullConsumer, PullConsumer
from pulljobs.client.strategies import Backoff, Delay, exponential, full_jitter, linear, up_to
from pulljobs.errors import Discard, Retry, Snooze

__all__ = [
    "AsyncMessage",
    "AsyncProducer",
    "AsyncPullConsumer",
    "Backoff",
    "BadRequest",
    "ClientError",
    "Connection",
    "Consumer",
    "Delay",
    "Discard",
    "Draft",
    "LeaseLost",
    "Limits",
    "Message",
    "NotAllowed",
    "NotFound",
    "NotPublished",
    "NotPullable",
    "Producer",
    "PullConsumer",
    "Receipt",
    "Refused",
    "Retry",
    "Snooze",
    "Subscription",
    "Unreachable",
    "exponential",
    "full_jitter",
    "linear",
    "up_to",
]
