"""Output of a command as JSON, as plain text or with the package rich."""

import json
from datetime import timedelta
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from django.core.serializers.json import DjangoJSONEncoder

from pulljobs.management import plain_output
from pulljobs.management.subcommands import CommandResult
from pulljobs.progress import is_smart

if TYPE_CHECKING:
    from rich.console import Console


class Output:
    """Stream and format of a command's output.

    `coloured` forces colours on or off. If it is None, the stream decides.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, coloured: bool | None = None) -> None:
        self.stream, self.as_json, self._coloured = stream, as_json, coloured

    @property
    def is_rich(self) -> bool:
        """Return True if rich renders the output: it is installed, and colours are wanted."""
        if self.as_json or self._coloured is False or find_spec("rich") is None:
            return False
        return bool(self._coloured) or is_smart(self.stream)

    def show(self, result: CommandResult) -> None:
        """Print a result and flush the stream."""
        if self.as_json:
            self.stream.write(json.dumps(result.content, cls=_ResultEncoder) + "\n")
        elif self.is_rich:
            from pulljobs.management import rich_output

            rich_output.print_blocks(self.console, result.lines)
        else:
            self.stream.writelines(f"{line}\n" for line in plain_output.render_lines(result.lines))
        self.stream.flush()

    @cached_property
    def console(self) -> "Console":
        """Console of rich on the stream."""
        from rich.console import Console

        return Console(file=self.stream, highlight=False, force_terminal=self._coloured)


class _ResultEncoder(DjangoJSONEncoder):
    """Encoder of times as ISO 8601, durations as seconds, and other types as text."""

    def default(self, o: Any) -> Any:
        if isinstance(o, timedelta):
            return o.total_seconds()
        try:
            return super().default(o)
        except TypeError:
            return str(o)
