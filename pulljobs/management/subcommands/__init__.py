"""Verbs of `manage.py pulljobs`: each module is the verb of its name.

An underscore at the end of a module's name, which keeps it apart from a builtin, is left out.
A module's docstring is its help. `add_arguments(parser)` is optional. `handle(**options)` does the
work and returns a `CommandResult`, or an iterator of results that are printed as they arrive. For a
wrong argument it raises `ConfigurationError` or `CommandError`. `options["output"]` is the `Output`
that will print the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import iter_modules
from typing import Any, Final

from pulljobs import hooks
from pulljobs.management.output_blocks import Block, FactsBlock

EXIT_OK: Final = 0
EXIT_PROBLEM: Final = 1
"""Exit code if something is wrong, or could not be done."""
EXIT_USAGE: Final = 2
"""Exit code for invalid arguments, in which case nothing was changed."""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Result of a verb, for programs and for people.

    `content` is printed by `--json`, with times and UUIDs as text. `lines` are printed otherwise.
    """

    content: Any
    lines: Sequence[Block] = ()
    exit_code: int = EXIT_OK

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "CommandResult":
        """Create a result of named values, printed with one line each."""
        rows = [(name.replace("_", " "), _format_value(value)) for name, value in facts.items()]
        return cls(facts, [FactsBlock(rows)])


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def find_modules() -> dict[str, str]:
    """Return the dotted module of each verb by name, sorted, including those of `hooks`."""
    names = [entry.name for entry in iter_modules(__path__)]
    own = {name.rstrip("_"): f"{__name__}.{name}" for name in names}
    return dict(sorted({**own, **hooks.subcommands}.items()))
