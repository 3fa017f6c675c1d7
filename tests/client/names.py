"""Names and tokens of the consumer and the producer in these tests."""

from typing import Any

from pulljobs.client import Subscription

SUBSCRIPTION = Subscription("orders", "census", "orders-token", "census-of-orders-token")
SHOP: dict[str, Any] = {"channel_token": "orders-token", "producer_token": "shop-token"}
ENVIRONMENT = {
    "PULLJOBS_CHANNEL_TOKEN": "orders-token",
    "PULLJOBS_CONSUMER_TOKEN": "census-of-orders-token",
    "PULLJOBS_PRODUCER_TOKEN": "shop-token",
    "PULLJOBS_GATEWAY_SECRET": "c2hhcmVkIGJ5IGJvdGg=",
}
