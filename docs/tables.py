"""Write the tables of the docs that code decides: `python docs/tables.py`. A test compares them."""

import argparse
import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from datetime import timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

import django
import yaml

from pulljobs import conf, errors
from pulljobs.api.schema.page import page as http
from pulljobs.client import errors as client_errors
from pulljobs.engine import telemetry
from pulljobs.metrics.families import COUNTED, READ, Family
from pulljobs.states import TRANSITIONS, State
from pulljobs.storage.promises import PASSING, PROMISES

DOCS = Path(__file__).parent
SQL = DOCS.parent / "pulljobs" / "sql"
METRICS = DOCS.parent / "pulljobs" / "metrics"
MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def states() -> str:
    rows = [
        f"| {event} | {' or '.join(sorted(one.sources))} | {_target(one.target, one.exhausted)}"
        f" | {one.who} |"
        for event, one in TRANSITIONS.items()
    ]
    return "\n".join(["| event | from | to | who |", "|---|---|---|---|", *rows])


def _target(target: State | None, exhausted: State | None) -> str:
    plain = target or "gone, its history stays in the archive"
    return f"{plain}; {exhausted} when its retries are used up" if exhausted else plain


def settings() -> str:
    source = inspect.getsource(conf.Settings)
    rows = []
    for field in fields(conf.Settings):
        about = re.search(rf'    {field.name}: .*?\n(?:    """(.*?)""")?', source, re.DOTALL)
        text = " ".join((about[1] or "").split()) if about else ""
        default = _default(getattr(conf.Settings(), field.name))
        kind = _cell(_kind(field.type))
        rows.append(f"| `{field.name}` | `{kind}` | {default} | {text} |")
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _kind(annotation: object) -> str:
    """As one writes it."""
    named = isinstance(annotation, type)
    text = annotation.__name__ if named else str(annotation).replace("datetime.", "")
    return text.replace("collections.abc.Sequence", "list").replace(
        "collections.abc.Mapping", "dict"
    )


def _default(value: object) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g} s"
    if isinstance(value, (tuple, list)) and value:
        return ", ".join(f"`{str(one).rpartition('.')[2]}`" for one in value)
    return f"`{value}`" if value not in ("", (), None) else "none"


def statements() -> str:
    sections = []
    for path in sorted(SQL.glob("*.sql")):
        header = [line[3:] for line in path.read_text("utf-8").splitlines() if line[:3] == "-- "]
        sections.append(f"## {path.stem}\n\n```text\n" + "\n".join(header) + "\n```\n")
    return "\n".join(sections)


def promises() -> str:
    rows = [
        f"| `{name}` | {says}{' Looked at twice.' if name in PASSING else ''} |"
        for name, says in PROMISES.items()
    ]
    return "\n".join(["| promise | what holds |", "|---|---|", *rows])


def errors_of(module: ModuleType) -> str:
    """The tree of a module's docstring, with what each says and carries."""
    rows = []
    for name, error in vars(module).items():
        if inspect.isclass(error) and error.__module__ == module.__name__:
            bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
            about = _described(module, name) or vars(error).get("__doc__") or "any of them"
            says, carries = _made(error)
            told = f"{_line(about)}: *{says}*" if says else _line(about)
            rows.append(f"| `{name}` | {bases} | {told} | {carries} |")
    head = ["| error | is a | when, and what it says | carries |", "|---|---|---|---|"]
    return "\n".join([*head, *rows])


def events() -> str:
    """Every event with its fields, and how the log tells it."""
    rows = []
    for name, event in vars(telemetry).items():
        if inspect.isclass(event) and is_dataclass(event):
            carries = ", ".join(f"`{field.name}`" for field in fields(event))
            rows.append(
                f"| `{name}` | {_described(telemetry, name)} | {carries} | {_logged(event)} |"
            )
    head = ["| event | what | carries | log |", "|---|---|---|---|"]
    return "\n".join([*head, *sorted(rows)])


def _described(module: ModuleType, name: str) -> str:
    """What the list in a module's docstring says of a name."""
    found = re.search(rf"^[ |`-]*{name}[ ]+(\S.*)$", module.__doc__ or "", re.MULTILINE)
    return found[1] if found else ""


def _made(error: type) -> tuple[str, str]:
    """The message an error makes of what it is given, and what it keeps of that."""
    if "__init__" not in vars(error):
        return "", ""
    nodes = list(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(error.__init__)))))
    [said] = [node for node in nodes if isinstance(node, ast.Call) and _is_init(node.func)]
    kept = [
        f"`{node.attr}`"
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    ]
    return _line(_template(said.args[-1])), ", ".join(kept)


def _is_init(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr == "__init__"


def _template(node: ast.expr) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else f"`{ast.unparse(part.value)}`"
            for part in node.values
        )
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _logged(event: type) -> str:
    wording = telemetry.log.registry.get(event)
    levels = re.findall(r"logger\.(\w+)\(", inspect.getsource(wording)) if wording else ["debug"]
    return " or ".join(dict.fromkeys(levels))


def _line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def metrics(families: Sequence[Family]) -> str:
    rows = [
        f"| `{one.name}` | {one.type} | {', '.join(f'`{label}`' for label in one.labels)} "
        f"| {one.meaning} |"
        for one in families
    ]
    return "\n".join(["| name | type | labels | meaning |", "|---|---|---|---|", *rows])


def alerts() -> str:
    groups = yaml.safe_load((METRICS / "alerts.yml").read_text("utf-8"))["groups"]
    rows = [
        f"| `{rule['alert']}` | {rule['labels']['severity']} | {rule.get('for', 'at once')} "
        f"| `{' '.join(rule['expr'].split())}` |"
        for group in groups
        for rule in group["rules"]
    ]
    return "\n".join(["| alert | severity | after | as long as |", "|---|---|---|---|", *rows])


def commands() -> str:
    """Every command with its help and what it takes."""
    sections = []
    for name in ("runpullworker", "pulljobs"):
        command = import_module(f"pulljobs.management.commands.{name}").Command()
        sections += _sections(command.create_parser("manage.py", name))
    return "\n".join(sections)


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    below = [one for one in parser._actions if isinstance(one, argparse._SubParsersAction)]
    taken = [one for one in parser._actions if not below and _is_own(one)]
    if not below:
        _manage, _space, name = parser.prog.partition(" ")
        head = ["| argument | meaning |", "|---|---|"] if taken else []
        rows = [f"| {_argument(one)} | {_cell(_help(parser, one))} |" for one in taken]
        told = _examples((parser.description or "").replace("%%", "%"))
        yield "\n".join([f"## {name}", "", told, "", *head, *rows, ""])
    for one in below:
        for action in one.choices.values():
            yield from _sections(action)


def _examples(text: str) -> str:
    """What is indented in a docstring are commands."""
    parts = []
    for part in text.split("\n\n"):
        lines = [line.strip() for line in part.splitlines()]
        if part.startswith("    "):
            lines = ["```console", *(f"$ python manage.py pulljobs {one}" for one in lines), "```"]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _is_own(action: argparse.Action) -> bool:
    """Not what all of Django's commands take, nor what all of ours do."""
    common = {"help", "json", "version", "verbosity", "settings", "pythonpath", "traceback"}
    return action.dest not in common | {"no_color", "force_color", "skip_checks"}


def _argument(action: argparse.Action) -> str:
    """As it is typed: `--rows ROWS`, `--reader adbc|copy`, `JOB`."""
    choices = "\\|".join(map(str, action.choices or ()))
    value = action.metavar or choices or action.dest.upper()
    if not action.option_strings:
        return f"`{value}`"
    return f"`{' '.join([*action.option_strings, *([str(value)] if action.nargs != 0 else [])])}`"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def python(module: str, names: str) -> str:
    """What a module offers: each by its signature, and what its docstring begins with."""
    rows = [_offered(name, getattr(import_module(module), name)) for name in names.split()]
    return "\n".join([f"| `{module}` | |", "|---|---|", *rows])


def _offered(name: str, one: Callable[..., object]) -> str:
    [node] = ast.parse(textwrap.dedent(inspect.getsource(one))).body
    assert isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    about = (ast.get_docstring(node) or "").partition("\n\n")[0]
    return f"| `{_cell(_signature(name, node))}` | {_cell(about)} |"


def _signature(name: str, node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """As the source has it, where types bear no modules; of a class its fields."""
    if isinstance(node, ast.ClassDef):
        taken = [ast.unparse(part) for part in node.body if isinstance(part, ast.AnnAssign)]
        only_named = ["*"] if "kw_only=True" in map(ast.unparse, _keywords(node)) else []
        return f"{name}({', '.join(only_named + taken)})".replace(
            "field(default_factory=dict)", "{}"
        )
    waiting = "await " if isinstance(node, ast.AsyncFunctionDef) else ""
    returned = ast.unparse(node.returns) if node.returns else "None"
    return f"{waiting}{name}({ast.unparse(node.args).replace('=', ' = ')}) -> {returned}"


def _keywords(node: ast.ClassDef) -> list[ast.keyword]:
    calls = [one for one in node.decorator_list if isinstance(one, ast.Call)]
    return [keyword for call in calls for keyword in call.keywords]


def error_tree() -> str:
    """That of the docstring."""
    lines = (errors.__doc__ or "").splitlines()
    return "\n".join(["```text", *(line[4:] for line in lines if line.startswith("    ")), "```"])


PYTHON: dict[str, tuple[str, str]] = {
    "publishing": (
        "pulljobs.publishing",
        "publish publish_many apublish apublish_many Draft Receipt",
    ),
    "scheduling": ("pulljobs.scheduling", "schedule"),
    "jobs": ("pulljobs.jobs", "get wait JobView"),
    "operating": (
        "pulljobs.operating",
        "kill redrive redrive_all requeue reschedule delete delete_exhausted purge pause Outcome "
        "stats Stats",
    ),
    "testing": (
        "pulljobs.testing",
        "perform Performed drain Ran assert_published published PublishedMessage",
    ),
}

TABLES: dict[str, Callable[[], str]] = {
    "commands": commands,
    "http": http,
    "states": states,
    "settings": settings,
    "promises": promises,
    "statements": statements,
    "errors": lambda: errors_of(errors),
    "client_errors": lambda: errors_of(client_errors),
    "events": events,
    "metrics_counted": lambda: metrics(COUNTED),
    "metrics_read": lambda: metrics(READ),
    "alerts": alerts,
    "error_tree": error_tree,
    **{f"python_{name}": partial(python, *offered) for name, offered in PYTHON.items()},
}


def filled(text: str) -> str:
    """The page with its tables as the code has them now."""
    return MARKED.sub(lambda mark: f"{mark[1]}\n{TABLES[mark[2]]()}\n\n{mark[3]}", text)


def main() -> None:
    django.setup()
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
