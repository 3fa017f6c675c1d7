"""What `manage.py pulljobs` can do: every module here is a subcommand of its name.

A module's docstring is its help. `add_arguments(parser)` is optional, `handle(**options)` does it
and returns an `Answer`; for a wrong argument it raises `ConfigurationError` or `CommandError`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """`content` is what `--json` prints, times and UUIDs as text; `lines` are for people."""

    content: Any
    lines: list[str] = field(default_factory=list)
    exit_code: int = 0

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Answer":
        """A line for each name."""
        return cls(found, [f"{name}: {_shown(value)}" for name, value in found.items()])


def _shown(value: Any) -> Any:
    return ", ".join(map(str, value)) or "none" if isinstance(value, list) else value
