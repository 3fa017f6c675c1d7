"""Refusals of requests without valid credentials: unknown names, wrong tokens or signatures."""

from functools import partial
from typing import Final

from pulljobs.api.exceptions import RefusedRequest

unknown_channel: Final = partial(
    RefusedRequest, 404, "There is no such channel: check its name in the URL.", "unknown_channel"
)
wrong_channel_token: Final = partial(
    RefusedRequest,
    403,
    "Send the channel's token as X-Broker-Channel-Token.",
    "wrong_channel_token",
)
unknown_consumer: Final = partial(
    RefusedRequest,
    401,
    "The channel has no such consumer: check its name in the URL.",
    "unknown_consumer",
)
wrong_consumer_token: Final = partial(
    RefusedRequest,
    403,
    "Send the consumer's token as X-Broker-Consumer-Token.",
    "wrong_consumer_token",
)
unknown_producer: Final = partial(
    RefusedRequest, 401, "Send the id of a producer that exists as X-Broker-Producer-ID."
)
wrong_producer_token: Final = partial(
    RefusedRequest, 403, "Send the producer's token as X-Broker-Producer-Token."
)
unsigned: Final = partial(
    RefusedRequest,
    401,
    "Sign the request: X-Broker-Signature: t=<Unix time>,v1=<hex digest>.",
    "unsigned",
)
signed_long_ago: Final = partial(
    RefusedRequest,
    403,
    "The time in X-Broker-Signature is too far from the server's: set your clock.",
    "bad_time",
)
wrong_signature: Final = partial(
    RefusedRequest,
    403,
    "X-Broker-Signature does not sign this body with the shared secret: check both.",
    "wrong_signature",
)
