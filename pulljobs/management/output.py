"""Output of a command: as JSON, as plain text, or styled by the package rich."""

import json
from datetime import timedelta
from functools import cached_property
from importlib.util import find_spec
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, TextIO

from django.core.serializers.json import DjangoJSONEncoder

from pulljobs.management import plain_output
from pulljobs.management.subcommands import CommandResult
from pulljobs.progress import is_smart

if TYPE_CHECKING:
    from rich.console import Console


class Output:
    """Printer of a command's results, to a stream in one of three formats.

    Colours need the package rich. `coloured` turns them on or off. With None they are on if the
    stream is a terminal.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, coloured: bool | None = None) -> None:
        self.stream, self.as_json, self._coloured = stream, as_json, coloured
        if isinstance(stream, TextIOWrapper):  # Whose encoding may lack a character, such as –.
            stream.reconfigure(errors="backslashreplace")

    @property
    def is_rich(self) -> bool:
        """True if the package rich renders the output: it is installed, and colours are wanted."""
        if self.as_json or self._coloured is False or find_spec("rich") is None:
            return False
        return bool(self._coloured) or is_smart(self.stream)

    def show(self, result: CommandResult) -> None:
        """Print the result of a verb in the chosen format, and flush the stream."""
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
        """Console of the package rich, which writes to the stream."""
        from pulljobs.management.rich_output import PipeConsole

        return PipeConsole(file=self.stream, highlight=False, force_terminal=self._coloured)


class _ResultEncoder(DjangoJSONEncoder):
    """JSON encoder: times as ISO 8601, durations as seconds, other unknown types as text."""

    def default(self, o: Any) -> Any:
        if isinstance(o, timedelta):
            return o.total_seconds()
        try:
            return super().default(o)
        except TypeError:
            return str(o)
