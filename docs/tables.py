"""Write the tables of the docs that code decides: `python docs/tables.py`. A test compares them."""

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from pulljobs import conf
from pulljobs.api.schema.page import page as http
from pulljobs.states import TRANSITIONS, State
from pulljobs.storage.promises import PASSING, PROMISES

DOCS = Path(__file__).parent
SQL = DOCS.parent / "pulljobs" / "sql"
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
        default = getattr(conf.Settings(), field.name)
        rows.append(f"| `{field.name}` | `{default}` | {text} |")
    return "\n".join(["| key | default | meaning |", "|---|---|---|", *rows])


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


TABLES: dict[str, Callable[[], str]] = {
    "http": http,
    "states": states,
    "settings": settings,
    "promises": promises,
    "statements": statements,
}


def filled(text: str) -> str:
    """The page with its tables as the code has them now."""
    return MARKED.sub(lambda mark: f"{mark[1]}\n{TABLES[mark[2]]()}\n\n{mark[3]}", text)


def main() -> None:
    for page in DOCS.rglob("*.md"):
        text = page.read_text("utf-8")
        if (new := filled(text)) != text:
            page.write_text(new, "utf-8")


if __name__ == "__main__":
    main()
