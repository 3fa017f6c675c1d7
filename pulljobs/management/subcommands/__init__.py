"""What `manage.py pulljobs` can do: every module here is a subcommand of its name.

A module's docstring is its help. `add_arguments(parser)` is optional, `handle(**options)` does it
and returns an `Answer`, or an iterator of them that are shown as they come. For a wrong argument it
raises `ConfigurationError` or `CommandError`. `options["output"]` is where the answer will go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pkgutil import iter_modules
from typing import Any, Final

from pulljobs import hooks
from pulljobs.management.output_blocks import Block, Facts

FINE: Final = 0
FOUND: Final = 1
"""Exit code where something is wrong, or could not be done."""
USAGE: Final = 2
"""Exit code where what was asked makes no sense; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """`content` is what `--json` prints, times and UUIDs as text; `lines` are for people."""

    content: Any
    lines: Sequence[Block] = ()
    exit_code: int = FINE

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Answer":
        """A fact for each name."""
        facts = [(name.replace("_", " "), _shown(value)) for name, value in found.items()]
        return cls(found, [Facts(facts)])


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def find_modules() -> dict[str, str]:
    """Return the module of each subcommand by its name, those of `hooks` among them."""
    own = {entry.name: f"{__name__}.{entry.name}" for entry in iter_modules(__path__)}
    return dict(sorted({**own, **hooks.subcommands}.items()))
