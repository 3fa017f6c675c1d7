"""Routes of the API, to be included at any prefix. The HMAC gateway guards all known paths."""

from django.core.exceptions import ImproperlyConfigured
from django.urls import path, re_path

try:
    import rest_framework  # noqa: F401
except ImportError as error:
    raise ImproperlyConfigured(
        f"pulljobs.api.urls needs Django REST framework ({error}). Run: "
        "python -m pip install 'pulljobs[api]'"
    ) from error

from pulljobs import hooks
from pulljobs.api import error_answers
from pulljobs.api.base_views import UnknownPath
from pulljobs.api.broker import urls as broker_urls
from pulljobs.api.gateway import guard
from pulljobs.api.leases import urls as lease_urls
from pulljobs.api.openapi.view import OpenApi

# A project may have pages of its own at all other paths.
UNKNOWN = re_path(r"^(channels?|producers?|limit-groups?)(/|$)", UnknownPath.as_view())

ADDED = [
    pattern for module in hooks.api_routes.values() for pattern in hooks.load(module).urlpatterns
]

app_name = "pulljobs"
urlpatterns = [
    # First: these are most of the requests, and Django tries one pattern after the other.
    *(guard(pattern, error_answers.as_problem) for pattern in lease_urls.urlpatterns),
    *(guard(pattern) for pattern in broker_urls.urlpatterns),
    guard(path("openapi.json", OpenApi.as_view(), name="openapi")),
    *(guard(pattern, error_answers.as_problem) for pattern in ADDED),
    UNKNOWN,
]
