"""/channel/{c}/consumers, /channel/{c}/consumer/{k}"""

from collections.abc import Mapping
from typing import Any

from django.http import QueryDict
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import registering
from pulljobs.api import exceptions, forms, resources
from pulljobs.api.base_views import UserView, channel_of, consumer_of
from pulljobs.api.broker import links, registry
from pulljobs.conf import settings
from pulljobs.models import Consumer


class Consumers(UserView):
    needs = registry.needs("consumer")

    def get(self, request: Request, **names: str) -> Response:
        rows = Consumer.objects.using(settings().DATABASE).select_related("channel")
        return registry.listed(
            request,
            rows.filter(channel=channel_of(names), deleted_at=None),
            lambda row: links.to_consumer(request, "consumer", row),
        )


class ConsumerView(registry.PartyView):
    needs = registry.needs("consumer")
    model = Consumer

    def find(self, names: Mapping[str, str]) -> Consumer:
        return consumer_of(names)

    def key(self, names: Mapping[str, str]) -> dict[str, Any]:
        return {"channel": channel_of(names), "name": names["consumer"]}

    def fields(self, form: QueryDict) -> dict[str, Any]:
        return forms.consumer(form)

    def show(self, request: Request, party: Consumer, token: str | None) -> dict[str, Any]:
        return resources.consumer(request, party, token)

    def delete(self, request: Request, **names: str) -> Response:
        """Only one that has no live jobs and is as the caller has seen it."""

        def check(existing: Consumer | None) -> None:
            if existing is None:
                raise exceptions.no_consumer()
            registry.check_precondition(request, existing)

        has = registering.delete_consumer(channel_of(names), names["consumer"], check)
        if has is not None:
            raise exceptions.has_jobs(resources.words(has.live))
        return Response(status=204)
