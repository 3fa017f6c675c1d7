"""What `manage.py pulljobs ACTION` is made of: an action takes its options and gives an answer."""

from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Options = Mapping[str, Any]


class Answer(NamedTuple):
    """`values` is what `--json` prints, `lines` what people read (none: the values, one a line)."""

    values: dict[str, Any]
    lines: list[str] | None = None
    ok: bool = True
    """False: the command ends with exit code 1."""

    @property
    def text(self) -> str:
        if self.lines is not None:
            return "\n".join(self.lines)
        return "\n".join(f"{name}: {_shown(value)}" for name, value in self.values.items())


def _shown(value: Any) -> Any:
    return ", ".join(value) or "none" if isinstance(value, list) else value


def no_options(parser: ArgumentParser) -> None:
    pass


@dataclass(frozen=True)
class Action:
    run: Callable[[Options], Answer]
    help: str
    add_options: Callable[[ArgumentParser], None] = no_options
