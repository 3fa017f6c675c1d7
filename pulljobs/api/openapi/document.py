"""The document: a view of DRF stands in for every route, and drf-spectacular reads those."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from django.urls import URLPattern, path
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import patched_settings
from rest_framework.views import APIView

from pulljobs import __version__
from pulljobs.api.broker.bodies import Body
from pulljobs.api.openapi import broker, leases
from pulljobs.api.openapi.operation import Operation

OPERATIONS: Final = {**broker.OPERATIONS, **leases.OPERATIONS}
ABOUT: Final = """\
Part A is the broker protocol: PascalCase JSON, errors in plain text. Part B is pulling with leases;
its errors are `application/problem+json`. No path ends with a slash. Ids compare exactly, times are
UTC. Where the gateway is on, every request also bears `X-Broker-Signature`.
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
SETTINGS: Final[dict[str, Any]] = {
    "TITLE": "pulljobs",
    "DESCRIPTION": ABOUT,
    "VERSION": __version__,
    "OAS_VERSION": "3.1.0",
    "SCHEMA_PATH_PREFIX": "",
    "APPEND_COMPONENTS": {"securitySchemes": SCHEMES},
    "POSTPROCESSING_HOOKS": [],
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
}

Document = dict[str, Any]


def document() -> Document:
    """OpenAPI 3.1 of all routes; raise KeyError for one that nobody has told of."""
    generator: Any = SchemaGenerator  # not typed
    with patched_settings(SETTINGS):
        made: Document = generator(patterns=[*_stand_ins()]).get_schema(public=True)
    _link(made)
    _share(made)
    _close(made)
    return made


def routes() -> Iterator[URLPattern]:
    """Those that answer something."""
    from pulljobs.api.urls import urlpatterns

    return (one for one in urlpatterns if one.name)


def _stand_ins() -> Iterator[URLPattern]:
    for route in routes():
        told = {method: one for (name, method), one in OPERATIONS.items() if name == route.name}
        yield path(str(route.pattern), _stand_in(str(route.name), told).as_view(), name=route.name)


def _stand_in(route: str, told: dict[str, Operation]) -> type[APIView]:
    methods: dict[str, Any] = {
        method.lower(): one.decorator(route, method)(_answers()) for method, one in told.items()
    }
    return type(f"Of{route}", (APIView,), {"schema": AutoSchema(), **methods})


def _answers() -> Callable[..., None]:
    def answer(view: APIView, request: Any) -> None:  # never called, only decorated
        pass

    vars(answer)["kwargs"] = {"schema": AutoSchema}
    return answer


def _link(made: Document) -> None:
    """What one operation answers that another takes, which drf-spectacular has no word for."""
    named = {f"{method.lower()}-{name}": one for (name, method), one in OPERATIONS.items()}
    for operation in (one for item in made["paths"].values() for one in item.values()):
        told = named[operation["operationId"]]
        if told.links:
            operation["responses"][str(told.status)]["links"] = dict(told.links)


def _share(made: Document) -> None:
    """Refusals stand once, and operations point to them."""
    shared = made["components"]["responses"] = {}
    for operation in (one for item in made["paths"].values() for one in item.values()):
        for status in filter(lambda status: status >= "400", operation["responses"]):
            [media_type] = operation["responses"][status]["content"]
            name = f"{'Problem' if 'problem' in media_type else 'Text'}{status}"
            shared[name] = operation["responses"][status]
            operation["responses"][status] = {"$ref": f"#/components/responses/{name}"}


def _close(made: Document) -> None:
    """An answer has no fields but those that are told."""
    answers = {one.__name__ for one in _descendants(Body)}
    for name, schema in made["components"]["schemas"].items():
        if name in answers:
            schema["additionalProperties"] = False


def _descendants(body: type[Any]) -> Iterator[type[Any]]:
    for one in body.__subclasses__():
        yield one
        yield from _descendants(one)
