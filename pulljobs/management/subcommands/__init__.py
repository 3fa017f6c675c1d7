"""Verbs of `manage.py pulljobs`: each module is the verb of its name.

The verb `list` has the module `list_`, because `list` is a builtin of Python. A module's
docstring is the help of the verb. `add_arguments(parser)` is optional. `handle(**options)` does the
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
    """Result of a verb: `content` for programs and `lines` for people.

    `--json` prints `content`, with times and UUIDs as text. Otherwise `lines` are printed.
    """

    content: Any
    lines: Sequence[Block] = ()
    exit_code: int = EXIT_OK

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "CommandResult":
        """Return a result of names and values, which people see with one pair per line."""
        rows = [(name.replace("_", " "), _format_value(value)) for name, value in facts.items()]
        return cls(facts, [FactsBlock(rows)])


def _format_value(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else str(value)


def find_modules() -> dict[str, str]:
    """Return the dotted name of the module of each verb, by the verb, sorted.

    Apps such as `pulljobs.schedules` add theirs to `hooks.subcommands`.
    """
    names = [entry.name for entry in iter_modules(__path__)]
    own = {name.rstrip("_"): f"{__name__}.{name}" for name in names}
    return dict(sorted({**own, **hooks.subcommands}.items()))
