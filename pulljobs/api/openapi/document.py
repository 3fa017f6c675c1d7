"""Making of the OpenAPI document.

drf-spectacular reads views of DRF only. So each route gets a view that is never called, with the
methods and descriptions of its operations.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, is_typeddict

from django.urls import URLPattern, path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from rest_framework.views import APIView

from pulljobs import __version__, hooks
from pulljobs.api.bodies import ProblemBody
from pulljobs.api.openapi import broker, leases
from pulljobs.api.openapi.operation import ApiOperation
from pulljobs.api.openapi.schemas import list_components

OPERATIONS: Final[Mapping[tuple[str, str], ApiOperation]] = {
    **broker.OPERATIONS,
    **leases.OPERATIONS,
    **{key: each for name in hooks.api_operations for key, each in hooks.load(name).items()},
}
ABOUT: Final = """\
The broker protocol has PascalCase JSON, and errors in plain text. The lease protocol pulls jobs
under leases, and its errors are `application/problem+json`. No path ends with a slash. Ids compare
exactly, and times are UTC. Where the gateway is on, every request also has `X-Broker-Signature`.
"""
SCHEMES: Final = {
    "basic": {"type": "http", "scheme": "basic"},
    "token": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "Token ...",
    },
    "session": {"type": "apiKey", "in": "cookie", "name": "sessionid"},
    "channelToken": {"type": "apiKey", "in": "header", "name": "X-Broker-Channel-Token"},
    "consumerToken": {"type": "apiKey", "in": "header", "name": "X-Broker-Consumer-Token"},
    "producer": {"type": "apiKey", "in": "header", "name": "X-Broker-Producer-ID"},
    "producerToken": {"type": "apiKey", "in": "header", "name": "X-Broker-Producer-Token"},
    "gateway": {"type": "apiKey", "in": "header", "name": "X-Broker-Signature"},
}
Document = dict[str, Any]


def document() -> Document:
    """Return all routes as an OpenAPI 3.1 document, for docs/openapi.py and tests.

    Methods of routes that have no operation are left out.
    """
    generator: Any = SchemaGenerator  # not typed
    with patched_settings(_settings()):
        made: Document = generator(patterns=[*_stand_ins()]).get_schema(public=True)
    _add_links(made)
    _share_refusals(made)
    _mark_required_bodies(made)
    return made


def routes() -> Iterator[URLPattern]:
    """Yield the routes of the API that have a name. Each of them has operations."""
    from pulljobs.api.urls import urlpatterns

    return (pattern for pattern in urlpatterns if pattern.name)


def _settings() -> dict[str, Any]:
    answers = [ProblemBody, *(operation.answer for operation in OPERATIONS.values())]
    requests = [
        body for operation in OPERATIONS.values() for body in (operation.body or {}).values()
    ]
    components = {
        "securitySchemes": SCHEMES,
        "schemas": list_components(filter(None, answers), filter(None, requests)),
    }
    return {
        "TITLE": "pulljobs",
        "DESCRIPTION": ABOUT,
        "VERSION": __version__,
        "OAS_VERSION": "3.1.0",
        "SCHEMA_PATH_PREFIX": "",
        "APPEND_COMPONENTS": components,
        "POSTPROCESSING_HOOKS": [],
    }


def _stand_ins() -> Iterator[URLPattern]:
    for route in routes():
        operations = {
            method: operation
            for (name, method), operation in OPERATIONS.items()
            if name == route.name
        }
        view = _stand_in(str(route.name), operations)
        yield path(str(route.pattern), view.as_view(), name=route.name)


def _stand_in(route: str, operations: dict[str, ApiOperation]) -> type[APIView]:
    methods: dict[str, Any] = {
        method.lower(): operation.decorator(route, method)(_make_method())
        for method, operation in operations.items()
    }
    return type(f"StandIn{route}", (APIView,), {"schema": AutoSchema(), **methods})


def _make_method() -> Callable[..., None]:
    def answer(view: APIView, request: Any) -> None:  # never called, only decorated
        pass

    vars(answer)["kwargs"] = {"schema": AutoSchema}
    return answer


def _each_operation(made: Document) -> Iterator[tuple[ApiOperation, dict[str, Any]]]:
    named = {f"{method.lower()}-{name}": item for (name, method), item in OPERATIONS.items()}
    for methods in made["paths"].values():
        for described in methods.values():
            yield named[described["operationId"]], described


def _add_links(made: Document) -> None:
    """Add the links of operations to their answers, because drf-spectacular can't add links."""
    for operation, described in _each_operation(made):
        if operation.links:
            described["responses"][str(operation.status)]["links"] = dict(operation.links)


def _share_refusals(made: Document) -> None:
    """Move the answers to refused requests into components, so that each is described once."""
    shared = made["components"]["responses"] = {}
    for _operation, described in _each_operation(made):
        for status in filter(lambda status: status >= "400", described["responses"]):
            [media_type] = described["responses"][status]["content"]
            name = f"{'Problem' if 'problem' in media_type else 'Text'}{status}"
            shared[name] = described["responses"][status]
            described["responses"][status] = {"$ref": f"#/components/responses/{name}"}


def _mark_required_bodies(made: Document) -> None:
    """Mark the bodies of requests as required if they have a required field."""
    for operation, described in _each_operation(made):
        bodies = (operation.body or {}).values()
        if any(is_typeddict(body) and body.__required_keys__ for body in bodies):
            described["requestBody"]["required"] = True
