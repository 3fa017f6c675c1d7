"""Reference of the HTTP API, from its OpenAPI document."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from generators.markdown import render_table, to_cell
from pulljobs.api import DOCUMENT

CALLERS: Final[Mapping[str, str]] = {
    "basic": "a user",
    "channelToken consumerToken": "the consumer",
    "channelToken producer producerToken": "a producer",
    "channelToken": "a client with the channel's token",
    "": "anybody",
}
"""By the names of an operation's first security requirement."""
BOUNDS: Final[Mapping[str, str]] = {"minimum": "from", "maximum": "to", "maxLength": "up to"}
COMMON_STATUSES: Final = ("429", "503")
Node = dict[str, Any]


def render_api() -> str:
    """Render a table of operations for each protocol, then a table for each body."""
    document = json.loads(DOCUMENT.read_text("utf-8"))
    operations = list(_find_operations(document))
    protocols = sorted({operation["tags"][0] for _request, operation in operations})
    sections = [_render_operations(protocol, operations) for protocol in protocols]
    bodies = [
        _render_body(name, schema)
        for name, schema in sorted(document["components"]["schemas"].items())
    ]
    return "\n".join([*sections, "## Bodies\n", *bodies])


def _find_operations(document: Node) -> Iterator[tuple[str, Node]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _render_operations(protocol: str, operations: list[tuple[str, Node]]) -> str:
    rows = [
        (
            f"`{request}`",
            to_cell(operation["summary"]),
            _render_caller(operation),
            _render_parameters(operation),
            _render_answers(operation),
        )
        for request, operation in operations
        if operation["tags"] == [protocol]
    ]
    table = render_table(["request", "does", "for", "takes", "answers"], rows)
    return f"## {protocol[0].upper()}{protocol[1:]}\n\n{table}\n"


def _render_caller(operation: Node) -> str:
    first: Node = next(iter(operation.get("security", [])), {})
    return CALLERS[" ".join(first)]


def _render_parameters(operation: Node) -> str:
    contents = operation.get("requestBody", {}).get("content", {}).values()
    parameters = [
        f"{parameter['name']} ({parameter['in']})"
        for parameter in operation.get("parameters", [])
        if parameter["in"] != "path"
    ]
    bodies = dict.fromkeys(_render_type(content["schema"]) for content in contents)
    return ", ".join([*bodies, *parameters]) or "-"


def _render_answers(operation: Node) -> str:
    answers = []
    for status, answer in sorted(operation["responses"].items()):
        if status not in COMMON_STATUSES:
            schemas = [content["schema"] for content in answer.get("content", {}).values()]
            bodies = [_render_type(schema) for schema in schemas if status < "400"]
            answers.append(" ".join([status, *bodies]))
    return ", ".join(answers)


def _render_body(name: str, schema: Node) -> str:
    required = schema.get("required", [])
    rows = [
        (
            f"`{field}`{'' if field in required else ' (optional)'}",
            _render_type(declaration),
            to_cell(declaration.get("description", "")),
        )
        for field, declaration in schema.get("properties", {}).items()
    ]
    about = f"{schema['description']}\n\n" if "description" in schema else ""
    return f"### {name}\n\n{about}{render_table(['field', 'type', ''], rows)}\n"


def _render_type(schema: Node) -> str:
    """Render a type in a word or two. A body becomes a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("allOf", "oneOf", "anyOf"):
        if key in schema:
            return " or ".join(_render_type(choice) for choice in schema[key])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_render_type(schema['items'])}"
    return _render_plain_type(schema)


def _render_plain_type(schema: Node) -> str:
    types = schema.get("type", "anything")
    is_time = schema.get("format") == "date-time"
    names = [types] if isinstance(types, str) else list(types)
    text = " or ".join("date-time" if is_time and name == "string" else name for name in names)
    bounds = [f"{text} {schema[key]:,}" for key, text in BOUNDS.items() if key in schema]
    return " ".join([text, *bounds])
