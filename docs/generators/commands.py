"""Reference of the commands, from their argument parsers."""

import argparse
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from generators.markdown import render_table, to_cell

COMMANDS: Final = ("runpullworker", "pulljobs")
COMMON: Final = {"help", "json", "version", "verbosity", "settings", "pythonpath", "traceback"} | {
    "no_color",
    "force_color",
    "skip_checks",
}
"""Arguments that all commands of Django, or all verbs of `pulljobs`, take."""


def render_commands() -> str:
    """Render a section for each command and verb: its help and its arguments."""
    sections: list[str] = []
    for name in COMMANDS:
        command = import_module(f"pulljobs.management.commands.{name}").Command()
        sections += _render_sections(command.create_parser("manage.py", name))
    return "\n".join(sections)


def _render_sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    verbs = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not verbs:
        yield _render_section(parser)
    for action in verbs:
        for subparser in action.choices.values():
            yield from _render_sections(subparser)


def _render_section(parser: argparse.ArgumentParser) -> str:
    name = parser.prog.partition(" ")[2]
    about = _render_examples((parser.description or "").replace("%%", "%"))
    rows = [
        (_render_argument(action), to_cell(_expand_help(parser, action)))
        for action in parser._actions
        if action.dest not in COMMON
    ]
    table = f"\n{render_table(['argument', 'meaning'], rows)}\n" if rows else ""
    return f"## {name}\n\n{about}\n{table}"


def _render_examples(description: str) -> str:
    """Make indented paragraphs, which are examples of `pulljobs` verbs, blocks of commands."""
    paragraphs = []
    for paragraph in description.split("\n\n"):
        lines = [line.strip() for line in paragraph.splitlines()]
        if paragraph.startswith("    "):
            examples = [f"$ python manage.py pulljobs {line}" for line in lines]
            lines = ["```console", *examples, "```"]
        paragraphs.append("\n".join(lines))
    return "\n\n".join(paragraphs)


def _render_argument(action: argparse.Action) -> str:
    """Render an argument as it is typed: `--rows ROWS`, `--reader adbc|copy`, `JOB`."""
    choices = "\\|".join(map(str, action.choices or ()))
    value = str(action.metavar or choices or action.dest.upper())
    if not action.option_strings:
        return f"`{value}`"
    return f"`{' '.join([*action.option_strings, *([value] if action.nargs != 0 else [])])}`"


def _expand_help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return parser._get_formatter()._expand_help(action) if action.help else ""
