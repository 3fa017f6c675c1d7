"""The document for people: tables of operations and bodies, in Markdown."""

import json
from typing import Any

from pulljobs.api import DOCUMENT

WHO = {
    "basic": "a user",
    "channelToken consumerToken": "the consumer",
    "channelToken producer producerToken": "a producer",
    "channelToken": "the channel's token",
    "": "anybody",
}
BOUNDS = {"minimum": "from", "maximum": "to", "maxLength": "up to"}
ANYWHERE = ("429", "503")
Node = dict[str, Any]


def page() -> str:
    document = json.loads(DOCUMENT.read_text("utf-8"))
    told = [
        (f"{method.upper()} {path}", operation)
        for path, item in document["paths"].items()
        for method, operation in item.items()
    ]
    parts = sorted({operation["tags"][0] for _name, operation in told})
    sections = [_operations(part, told) for part in parts]
    bodies = [_body(*one) for one in sorted(document["components"]["schemas"].items())]
    return "\n".join([*sections, "## Bodies\n", *bodies]).rstrip() + "\n"


def _operations(part: str, told: list[tuple[str, Node]]) -> str:
    rows = [
        f"| `{name}` | {one['summary']} | {_who(one)} | {_takes(one)} | {_answers(one)} |"
        for name, one in told
        if one["tags"] == [part]
    ]
    head = "| request | does | for | takes | answers |\n|---|---|---|---|---|"
    return f"## {part[0].upper()}{part[1:]}\n\n{head}\n" + "\n".join(rows) + "\n"


def _who(operation: Node) -> str:
    first: Node = next(iter(operation.get("security", [])), {})
    return WHO[" ".join(first)]


def _takes(operation: Node) -> str:
    body = operation.get("requestBody", {}).get("content", {})
    named = [
        f"{one['name']} ({one['in']})"
        for one in operation.get("parameters", [])
        if one["in"] != "path"
    ]
    bodies = dict.fromkeys(_type(content["schema"]) for content in body.values())
    return ", ".join([*bodies, *named]) or "-"


def _answers(operation: Node) -> str:
    told = []
    for status, answer in sorted(operation["responses"].items()):
        if status in ANYWHERE:
            continue
        schemas = [one["schema"] for one in answer.get("content", {}).values()]
        shown = [_type(one) for one in schemas if status < "400"]
        told.append(" ".join([status, *shown]))
    return ", ".join(told)


def _body(name: str, schema: Node) -> str:
    required = schema.get("required", [])
    rows = [
        f"| `{field}`{'' if field in required else ' (optional)'} | {_type(one)} "
        f"| {one.get('description', '')} |"
        for field, one in schema.get("properties", {}).items()
    ]
    about = f"{schema['description']}\n\n" if "description" in schema else ""
    head = "| field | type | |\n|---|---|---|"
    return f"### {name}\n\n{about}{head}\n" + "\n".join(rows) + "\n"


def _type(schema: Node) -> str:
    """A word or two; a body by its name."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("allOf", "oneOf", "anyOf"):
        if key in schema:
            return " or ".join(_type(one) for one in schema[key])
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return _plain(schema)


def _plain(schema: Node) -> str:
    kinds = schema.get("type", "anything")
    named = schema.get("format")
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    shown = " or ".join(
        named if named == "date-time" and word == "string" else word for word in words
    )
    bounds = [f"{word} {schema[key]:,}" for key, word in BOUNDS.items() if key in schema]
    return " ".join([shown, *bounds])
