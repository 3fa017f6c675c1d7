"""The OpenAPI document describes every route, and the checked-in copy is up to date."""

import json
from typing import Any

import pytest
from django.test import Client, override_settings
from django.urls import include, path

from pulljobs.api import DOCUMENT
from pulljobs.api.openapi.document import OPERATIONS, document, routes

urlpatterns = [path("broker/", include("pulljobs.api.urls"))]


def test_the_checked_in_document_is_that_of_the_code() -> None:
    """The copy is up to date. After a change of the API, write it by `python docs/openapi.py`."""
    assert json.loads(DOCUMENT.read_text("utf-8")) == json.loads(json.dumps(document()))


def test_every_route_and_method_is_documented_and_no_other() -> None:
    routed = {
        (str(route.name), method)
        for route in routes()
        for method in _methods(route.callback)
        if method != "OPTIONS"
    }
    assert routed == set(OPERATIONS)


def _methods(view: Any) -> set[str]:
    served = getattr(view, "view_class", None) or view.cls
    return {name.upper() for name in served.http_method_names if hasattr(served, name)}


@pytest.mark.django_db
def test_it_is_served_for_the_place_where_the_api_is_mounted() -> None:
    with override_settings(ROOT_URLCONF=__name__):
        served = Client().get("/broker/openapi.json").json()
    assert served["servers"] == [{"url": "/broker"}]
    assert served["paths"].keys() == document()["paths"].keys()


def test_every_answer_has_a_request_id_and_every_refusal_a_form() -> None:
    made = document()
    for operation in (
        described for methods in made["paths"].values() for described in methods.values()
    ):
        for status, response in operation["responses"].items():
            if "$ref" in response:
                response = made["components"]["responses"][response["$ref"].split("/")[-1]]
            assert response["headers"]["X-Request-ID"]["required"]
            assert status < "400" or response["content"].keys() <= {
                "text/plain; charset=utf-8",
                "application/problem+json",
            }
