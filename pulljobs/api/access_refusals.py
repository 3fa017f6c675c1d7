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
    "X-Broker-Channel-Token is missing or wrong: send the token of the channel.",
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
    "X-Broker-Consumer-Token is missing or wrong: send the token of the consumer.",
    "wrong_consumer_token",
)
unknown_producer: Final = partial(
    RefusedRequest,
    401,
    "X-Broker-Producer-ID is missing, or there is no such producer: send the id of yours.",
)
wrong_producer_token: Final = partial(
    RefusedRequest,
    403,
    "X-Broker-Producer-Token is missing or wrong: send the token of the producer.",
)
token_replaced: Final = partial(
    RefusedRequest,
    403,
    "The token of the consumer or its channel was replaced during the pull: send the new one.",
    "token_replaced",
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
