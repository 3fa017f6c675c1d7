"""Translation of declared bodies into JSON schemas, the components of the OpenAPI document."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, get_args, get_origin, get_type_hints, is_typeddict

from pulljobs.api.bodies import (
    Bounds,
    Format,
    Help,
    ItemsUpTo,
    TextUpTo,
    UpTo,
    as_number,
    choices_of,
    fields_of,
    is_choice,
    is_closed,
    unwrap,
)
from pulljobs.conf import Settings

JsonSchema = dict[str, Any]
DEFAULTS: Final = Settings()
PLAIN: Final[Mapping[Any, JsonSchema]] = {
    int: {"type": "integer"},
    float: {"type": "number", "format": "double"},
    bool: {"type": "boolean"},
    str: {"type": "string"},
    Any: {},
}


def name_of(body: type[Any]) -> str:
    """Return the name of a body's component: its class name without the suffix `Body`."""
    return body.__name__.removesuffix("Body")


def refer(body: Any) -> Any:
    """Return the schema of a declared body, with references to components.

    A dictionary is a schema already, and is returned as it is, like None.
    """
    return body if isinstance(body, dict) or body is None else _schema_of(body)


def list_components(answers: Iterable[Any], requests: Iterable[Any]) -> dict[str, JsonSchema]:
    """Return the schemas of all bodies by name, sorted. Those of answers forbid other fields."""
    components = {name_of(body): _component(body) for body in reach(requests)}
    for body in reach(answers):
        components[name_of(body)] = {**_component(body), "additionalProperties": False}
    return dict(sorted(components.items()))


def reach(bodies: Iterable[Any]) -> Iterator[Any]:
    """Yield the bodies and, recursively, the bodies in their fields, some more than once."""
    for body in bodies:
        if is_typeddict(body):
            yield body
            yield from reach(field.kind for field in fields_of(body))
        elif not isinstance(body, dict):
            yield from reach(unwrap(argument)[0] for argument in get_args(unwrap(body)[0]))


def _component(body: Any) -> JsonSchema:
    fields, hints = fields_of(body), get_type_hints(body, include_extras=True)
    schema: JsonSchema = {"type": "object"}
    if description := body.__doc__:
        schema["description"] = description
    schema["properties"] = {field.name: _schema_of(hints[field.name]) for field in fields}
    if required := sorted(field.name for field in fields if field.is_required):
        schema["required"] = required
    if is_closed(body):
        schema["additionalProperties"] = False
    return schema


def _schema_of(hint: Any) -> JsonSchema:
    kind, marks, is_nullable = unwrap(hint)
    schema = _type_schema(kind)
    for mark in marks:
        schema |= _bounds_of(mark)
    return _or_null(schema) if is_nullable else schema


def _or_null(schema: JsonSchema) -> JsonSchema:
    if "$ref" in schema:
        return {"oneOf": [schema, {"type": "null"}]}
    if "enum" in schema:
        return {**schema, "type": [schema["type"], "null"], "enum": [*schema["enum"], None]}
    return {**schema, "type": [schema["type"], "null"]}


def _type_schema(kind: Any) -> JsonSchema:
    if is_typeddict(kind):
        return {"$ref": f"#/components/schemas/{name_of(kind)}"}
    if is_choice(kind):
        choices = choices_of(kind)
        return {"enum": choices, "type": "integer" if type(choices[0]) is int else "string"}
    if get_origin(kind) is list:
        return {"type": "array", "items": _schema_of(get_args(kind)[0])}
    if get_origin(kind) is dict:
        return {"type": "object", "additionalProperties": _schema_of(get_args(kind)[1])}
    return dict(PLAIN[kind])


def _bounds_of(mark: Any) -> JsonSchema:
    """Return the JSON schema keywords of an annotation. A limit by a setting is its default."""
    match mark:
        case Bounds(least, most):
            return _without_none(minimum=least, maximum=None if most == math.inf else most)
        case TextUpTo(length, pattern):
            return _without_none(maxLength=length, pattern=pattern)
        case UpTo(setting):
            return {"maximum": as_number(getattr(DEFAULTS, setting))}
        case ItemsUpTo(setting):
            return {"maxItems": getattr(DEFAULTS, setting)}
        case Format(name):
            return {"format": name}
        case Help(text):
            return {"description": text}
    return {}


def _without_none(**keywords: Any) -> JsonSchema:
    return {name: value for name, value in keywords.items() if value is not None}
