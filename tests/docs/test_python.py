"""The page on Python: what it says by hand of keywords, fields and the job is what they are."""

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
FOR_THE_WORKER = {"extend", "is_late_at", "mark_settled", "tell_end"}
TYPES = {
    models.BooleanField: "bool",
    models.CharField: "str",
    models.DurationField: "timedelta",
    models.FloatField: "float",
    models.IntegerField: "int",
}


def told(head: str) -> list[list[str]]:
    """The first cells of each row of the table that begins so, without the meaning."""
    table = PAGE[PAGE.index(f"| {head} |") :].partition("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line)[1:-2] for line in table.splitlines()[2:]]
    return [[cell.strip().replace("`", "").replace("\\", "") for cell in row] for row in rows]


def test_keywords_of_a_handler() -> None:
    [function] = ast.parse(inspect.getsource(handler)).body
    assert isinstance(function, ast.FunctionDef)
    taken = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    assert told("keyword") == [
        [one.arg, ast.unparse(one.annotation or one), _default(default)] for one, default in taken
    ]


def test_fields_of_a_consumer() -> None:
    fields = [one for one in Consumer._meta.concrete_fields if one.name in options.names()]
    assert told("field") == [[one.name, _type(one), _shown(one)] for one in fields]


def test_what_a_job_offers() -> None:
    found = {
        name: inspect.signature(_function(one))
        for name, one in vars(ClaimedJob).items()
        if name[0] != "_" and (isinstance(one, property) or inspect.isfunction(one))
    }
    says = {name.partition("(")[0]: (name, type) for name, type in told("`job.`")}
    assert found.keys() - FOR_THE_WORKER == says.keys()
    for name, (call, type) in says.items():
        assert _words(found[name].return_annotation) == type
        assert _parameters(call) == _defaults(found[name])


def _function(one: Any) -> Any:
    return one.fget if isinstance(one, property) else one


def _default(node: ast.expr | None) -> str:
    text = "" if node is None else ast.unparse(node).rpartition(".")[2]
    return "none" if text == "None" else text


def _type(one: Any) -> str:
    [word] = [word for kind, word in TYPES.items() if isinstance(one, kind)]
    return f"{word} | None" if one.null else word


def _shown(one: Any) -> str:
    value = one.get_default()
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    return "none" if value in (None, "") else str(value)


def _words(annotation: Any) -> str:
    named = isinstance(annotation, type)
    return annotation.__name__ if named else str(annotation).replace("typing.", "")


def _parameters(call: str) -> dict[str, Any]:
    """`nack(after=None)`: after, None."""
    [made] = ast.parse(call).body
    assert isinstance(made, ast.Expr)
    keywords = made.value.keywords if isinstance(made.value, ast.Call) else []
    return {str(one.arg): ast.literal_eval(one.value) for one in keywords}


def _defaults(signature: inspect.Signature) -> dict[str, Any]:
    return {name: one.default for name, one in signature.parameters.items() if name != "self"}
