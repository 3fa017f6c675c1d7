"""Client of the broker protocol that publishes, for tests."""

from typing import Any

from django.test import Client

from pulljobs.models import Channel, Producer


class Announcer:
    """Client of one producer. A test changes its `headers` to send others or wrong ones."""

    def __init__(self, channel: Channel, channel_token: str, name: str = "shop") -> None:
        producer = Producer.objects.filter(name=name).first() or Producer(name=name)
        self.client = Client(raise_request_exception=True)
        self.url = f"/channel/{channel.name}/broadcast"
        self.headers = {
            "X-Broker-Channel-Token": channel_token,
            "X-Broker-Producer-ID": name,
            "X-Broker-Producer-Token": producer.set_token(f"{name}-token"),
        }
        producer.save()

    def post(self, payload: bytes = b"x", content_type: str = "text/plain", **named: str) -> Any:
        headers = self.headers | {
            f"X-Broker-{name}".replace("_", "-"): named[name] for name in named
        }
        return self.client.generic("POST", self.url, payload, content_type, headers=headers)
