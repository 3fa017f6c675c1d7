"""What a claim asks of a connection."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

Row = tuple[Any, ...]


class Session(Protocol):
    def run(self, name: str, params: Mapping[str, Any]) -> list[Row]:
        """The rows of a statement of `pulljobs.engine.sql`, in the transaction there is, if any."""

    def atomic(self) -> AbstractContextManager[object]:
        """A transaction, or a savepoint within one; what is raised through it undoes it."""
