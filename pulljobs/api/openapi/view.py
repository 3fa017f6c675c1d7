"""Route openapi.json: it serves the OpenAPI document to anyone."""

import json
from functools import cache
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import hooks
from pulljobs.api import DOCUMENT
from pulljobs.api.base_views import ProtocolView
from pulljobs.api.broker.links import path_of
from pulljobs.api.openapi import BROKER, LEASES


class OpenApi(ProtocolView):
    authentication_classes = []

    def get(self, request: Request) -> Response:
        mounted_at = path_of(request).removesuffix("/openapi.json")
        return Response({**_load_document(), "servers": [{"url": mounted_at or "/"}]})


@cache
def _load_document() -> dict[str, Any]:
    """Return the document in openapi.json, without the paths of apps that are not installed."""
    document: dict[str, Any] = json.loads(DOCUMENT.read_text("utf-8"))
    tags = {BROKER, LEASES, *hooks.api_routes}
    paths = {
        path: methods
        for path, methods in document["paths"].items()
        if all(tags.issuperset(operation["tags"]) for operation in methods.values())
    }
    return {**document, "paths": paths}
