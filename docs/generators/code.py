"""Tables of classes and functions: the Python API, errors and events."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from generators.markdown import render_table, to_cell
from pulljobs import errors
from pulljobs.engine import telemetry
from pulljobs.lake import telemetry as lake_telemetry
from pulljobs.schedules import telemetry as schedules_telemetry
from pulljobs.workflows import telemetry as runs_telemetry
from pulljobs.workflows.batches import telemetry as batches_telemetry

PUBLIC_API: Final[Mapping[str, tuple[str, str]]] = {
    "publishing": (
        "pulljobs.publishing",
        "publish publish_many apublish apublish_many Draft Receipt",
    ),
    "scheduling": ("pulljobs.scheduling", "schedule"),
    "schedules": (
        "pulljobs.schedules",
        "every declare declare_for_task create create_for_task update pause resume delete fire_now "
        "backfill slot_of sync",
    ),
    "workflows": (
        "pulljobs.workflows",
        "workflow Run AsyncRun signal asignal create_signal_token redrive",
    ),
    "batches": (
        "pulljobs.batches",
        "batch create extend find_batch get wait results cancel redrive OpenBatch BatchView "
        "MemberResult DeadMember Callback enqueue call_task abatch acreate aget",
    ),
    "jobs": ("pulljobs.jobs", "get wait JobView"),
    "operating": (
        "pulljobs.operating",
        "kill redrive redrive_all requeue reschedule delete delete_exhausted purge pause Changed "
        "stats Stats",
    ),
    "testing": (
        "pulljobs.testing",
        "perform PerformedJob drain DrainedJob assert_published published PublishedMessage",
    ),
}
"""By the name of the part: the module, and the names that it offers, in the order of the page."""
EVENT_MODULES: Final = (
    telemetry,
    lake_telemetry,
    schedules_telemetry,
    runs_telemetry,
    batches_telemetry,
)


def render_module(module: str, names: str) -> str:
    """Render names of a module: the signature and the first paragraph of the docstring."""
    rows = [
        _render_definition(name, getattr(import_module(module), name)) for name in names.split()
    ]
    return render_table([f"`{module}`", ""], rows)


def _render_definition(name: str, definition: Callable[..., object]) -> tuple[str, str]:
    [node] = ast.parse(textwrap.dedent(inspect.getsource(definition))).body
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    about = (ast.get_docstring(node) or "").partition("\n\n")[0]
    return f"`{to_cell(_render_signature(name, node))}`", to_cell(about)


def _render_signature(
    name: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
) -> str:
    """Render a signature as the source has it. That of a class is made of its fields."""
    if isinstance(node, ast.ClassDef):
        taken = [ast.unparse(part) for part in node.body if isinstance(part, ast.AnnAssign)]
        keyword_only = ["*"] if "kw_only=True" in map(ast.unparse, _find_keywords(node)) else []
        signature = f"{name}({', '.join(keyword_only + taken)})"
        return signature.replace("field(default_factory=dict)", "{}")
    awaited = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    returned = ast.unparse(node.returns) if node.returns else "None"
    return f"{awaited}{name}({ast.unparse(node.args).replace('=', ' = ')}) -> {returned}"


def _find_keywords(node: ast.ClassDef) -> list[ast.keyword]:
    calls = [decorator for decorator in node.decorator_list if isinstance(decorator, ast.Call)]
    return [keyword for call in calls for keyword in call.keywords]


def render_error_tree() -> str:
    """Render the tree in the docstring of `pulljobs.errors`."""
    lines = (errors.__doc__ or "").splitlines()
    return "\n".join(["```text", *(line[4:] for line in lines if line.startswith("    ")), "```"])


def render_errors(module: ModuleType) -> str:
    """Render the errors of a module: bases, meaning, message and attributes."""
    rows = []
    for name, error in find_classes(module):
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        about = _describe(module, name, error) or "base of the tree"
        message, attributes = _read_init(error)
        meaning = f"{about}: *{message}*" if message else about
        rows.append((f"`{name}`", bases, meaning, attributes))
    return render_table(["error", "is a", "when, and its message", "carries"], rows)


def render_events() -> str:
    """Render the telemetry events: meaning, fields and the level they are logged at."""
    rows = [
        (
            f"`{name}`",
            _describe(module, name, event),
            ", ".join(f"`{field.name}`" for field in fields(event)),
            _find_log_levels(event),
        )
        for module in EVENT_MODULES
        for name, event in find_classes(module)
        if is_dataclass(event)
    ]
    return render_table(["event", "meaning", "carries", "log"], sorted(rows))


def find_classes(module: ModuleType) -> Iterator[tuple[str, type[Any]]]:
    """Find the classes that a module defines, in its order."""
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__:
            yield name, value


def _describe(module: ModuleType, name: str, value: type) -> str:
    """Find the text after a name in the list of its module, or else its docstring."""
    entry = re.search(rf"^[ |`-]*{name}[ ]+(\S.*)$", module.__doc__ or "", re.MULTILINE)
    text = entry[1] if entry else vars(value).get("__doc__") or ""
    if text.startswith(f"{name}("):  # a dataclass has its signature if it has no docstring
        return ""
    return to_cell(text[:1].upper() + text[1:]).removesuffix(".")


def _read_init(error: type) -> tuple[str, str]:
    """Read from the source of `__init__` the message it makes and the attributes it sets."""
    if "__init__" not in vars(error):
        return "", ""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(error.__init__)))))
    [call] = [node for node in nodes if isinstance(node, ast.Call) and _is_init(node.func)]
    attributes = [
        f"`{node.attr}`"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return to_cell(_render_message(call.args[-1])), ", ".join(attributes)


def _is_init(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "__init__"


def _render_message(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else f"`{ast.unparse(part.value)}`"
            for part in node.values
        )
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _find_log_levels(event: type) -> str:
    wording = telemetry.log.registry.get(event)
    levels = re.findall(r"logger\.(\w+)\(", inspect.getsource(wording)) if wording else ["debug"]
    return " or ".join(dict.fromkeys(levels))
