"""The page on Python names the keywords, fields and attributes that the code has."""

import ast
import inspect
import re
from datetime import timedelta
from typing import Any

from django.db import models

from example_project.state import BASE_DIR
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.models import Consumer, options

PAGE = (BASE_DIR / "docs" / "reference" / "python.md").read_text("utf-8")
FOR_THE_WORKER = {
    "extend",
    "is_late_at",
    "limited",
    "limits",
    "mark_settled",
    "report_end",
    "timeout",
}
TYPES = {
    models.BooleanField: "bool",
    models.CharField: "str",
    models.DurationField: "timedelta",
    models.FloatField: "float",
    models.ForeignKey: "str",  # by its name
    models.IntegerField: "int",
}


def cells(head: str) -> list[list[str]]:
    """Return the cells of each row of a table of the page, without its last column.

    `head` is the text of the table's first cells, by which it is found.
    """
    table = PAGE[PAGE.index(f"| {head} |") :].partition("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-2] for line in table.splitlines()[2:]]
    return [[cell.strip().replace("`", "").replace("\\", "") for cell in row] for row in rows]


def test_the_page_has_the_keywords_of_a_handler() -> None:
    [function] = ast.parse(inspect.getsource(handler)).body
    assert isinstance(function, ast.FunctionDef)
    taken = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    assert cells("keyword") == [
        [arg.arg, ast.unparse(arg.annotation or arg), _default(default)] for arg, default in taken
    ]


def test_the_page_has_the_fields_of_a_consumer() -> None:
    fields = [field for field in Consumer._meta.concrete_fields if field.name in options.names()]
    named = [[field.name, _type(field), _default_of(field)] for field in fields]
    assert sorted(cells("field")) == sorted(named)


def test_the_page_has_the_attributes_of_a_job() -> None:
    signatures = {
        name: inspect.signature(_function(member))
        for name, member in vars(ClaimedJob).items()
        if name[0] != "_" and (isinstance(member, property) or inspect.isfunction(member))
    }
    says = {name.partition("(")[0]: (name, type) for name, type in cells("`job.`")}
    assert signatures.keys() - FOR_THE_WORKER == says.keys()
    for name, (call, type) in says.items():
        assert _type_name(signatures[name].return_annotation) == type
        assert _parameters(call) == _defaults(signatures[name])


def _function(member: Any) -> Any:
    return member.fget if isinstance(member, property) else member


def _default(node: ast.expr | None) -> str:
    text = "" if node is None else ast.unparse(node).rpartition(".")[2]
    return "none" if text == "None" else text


def _type(field: Any) -> str:
    [name] = [name for kind, name in TYPES.items() if isinstance(field, kind)]
    return f"{name} | None" if field.null else name


def _default_of(field: Any) -> str:
    value = field.get_default()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    return "none" if value in (None, "") else str(value)


def _type_name(annotation: Any) -> str:
    named = isinstance(annotation, type)
    return annotation.__name__ if named else str(annotation).replace("typing.", "")


def _parameters(call: str) -> dict[str, Any]:
    """Return the parameters of a call with their defaults: after and None of `nack(after=None)`."""
    [made] = ast.parse(call).body
    assert isinstance(made, ast.Expr)
    if not isinstance(made.value, ast.Call):
        return {}
    needed = {ast.unparse(each): inspect.Parameter.empty for each in made.value.args}
    return needed | {str(each.arg): ast.literal_eval(each.value) for each in made.value.keywords}


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if name != "self"
    }
