"""Route /channel/{c}/consumer/{k}/weights: operators read and set the weights of keys."""

import re
from typing import Final

from django.db import transaction
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import auditing, registering, weights
from pulljobs.api import exceptions
from pulljobs.api.authentication import user_name
from pulljobs.api.base_views import UserView, consumer_of
from pulljobs.api.broker.bodies import KeyWeightBody, KeyWeightFormBody, KeyWeightsBody
from pulljobs.api.broker.forms import read_form_or_json
from pulljobs.api.broker.links import add_query, link_in_consumer
from pulljobs.conf import settings
from pulljobs.errors import InvalidRegistration

PAGE: Final = 1_000
NUMBER: Final = re.compile(r"[0-9]{1,9}")


class KeyWeights(UserView):
    needs = {"GET": ["pulljobs.view_consumer"], "PUT": ["pulljobs.change_consumer"]}

    def get(self, request: Request, **names: str) -> Response:
        """List keys whose weight is not 1, with their weights: a page in the order of the keys."""
        consumer, after = consumer_of(names), request.query_params.get("after")
        if after is not None and registering.NUL in after:
            after = None
        known = weights.read_weights(consumer, after=after, most=PAGE)
        here = link_in_consumer(request, "weights", consumer)
        body: KeyWeightsBody = {
            "Result": [{"Key": key, "Weight": weight} for key, weight in known.items()],
            "Next": add_query(here, {"after": [*known][-1]}) if len(known) == PAGE else None,
        }
        return Response(body)

    def put(self, request: Request, **names: str) -> Response:
        """Set the weight of the key in the form or JSON body, with an entry in the audit trail."""
        consumer, form = consumer_of(names), read_form_or_json(request, KeyWeightFormBody)
        key = form.get("key", "")
        try:
            weight = _parse_weight(form.get("weight", ""))
            with transaction.atomic(using=settings().DATABASE):
                weights.set_weight(consumer, key, weight)
                auditing.note_weight(consumer, key, weight, by=user_name(request))
        except InvalidRegistration as error:
            raise exceptions.refused(400, error) from error
        body: KeyWeightBody = {"Key": key, "Weight": weight}
        return Response(body)


def _parse_weight(text: str) -> int:
    if not NUMBER.fullmatch(text):
        raise InvalidRegistration(f"weight must be from 1 to {weights.MOST}, not {text!r}.")
    return int(text)
