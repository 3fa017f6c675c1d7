"""/producers, /producer/{p}"""

from collections.abc import Mapping
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs.api import exceptions, resources
from pulljobs.api.authentication import find
from pulljobs.api.base_views import UserView
from pulljobs.api.broker import links, registry
from pulljobs.conf import settings
from pulljobs.models import Producer


class Producers(UserView):
    needs = registry.needs("producer")

    def get(self, request: Request) -> Response:
        rows = Producer.objects.using(settings().DATABASE)
        return registry.listed(
            request, rows, lambda row: links.to(request, "producer", producer=row.name)
        )


class ProducerView(registry.PartyView):
    needs = registry.needs("producer")
    model = Producer

    def find(self, names: Mapping[str, str]) -> Producer:
        producer = find(Producer, names["producer"])
        if producer is None:
            raise exceptions.no_producer()
        return producer

    def key(self, names: Mapping[str, str]) -> dict[str, Any]:
        return {"name": names["producer"]}

    def show(self, request: Request, party: Producer, token: str | None) -> dict[str, Any]:
        return resources.producer(request, party, token)
