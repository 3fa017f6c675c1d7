"""Where a command's answers go, and in which of the three looks: JSON, plain, or by rich."""

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
    """`coloured` True or False overrules what the stream is."""

    def __init__(self, stream: TextIO, *, as_json: bool, coloured: bool | None = None) -> None:
        self.stream, self.as_json, self._coloured = stream, as_json, coloured

    @property
    def is_rich(self) -> bool:
        if self.as_json or self._coloured is False or find_spec("rich") is None:
            return False
        return bool(self._coloured) or is_smart(self.stream)

    def show(self, answer: CommandResult) -> None:
        if self.as_json:
            self.stream.write(json.dumps(answer.content, cls=_Encoder) + "\n")
        elif self.is_rich:
            from pulljobs.management import rich_output

            rich_output.show(self.console, answer.lines)
        else:
            self.stream.writelines(f"{line}\n" for line in plain_output.lines(answer.lines))
        self.stream.flush()

    @cached_property
    def console(self) -> "Console":
        from rich.console import Console

        return Console(file=self.stream, highlight=False, force_terminal=self._coloured)


class _Encoder(DjangoJSONEncoder):
    """Times as ISO 8601, spans in seconds, what JSON does not know as text."""

    def default(self, o: Any) -> Any:
        if isinstance(o, timedelta):
            return o.total_seconds()
        try:
            return super().default(o)
        except TypeError:
            return str(o)
