"""What is so for more than a moment."""

from typing import Final

LOOKS: Final = 5


class Steady:
    """Whether something is so at several looks in a row.

    At one look it may be so of all: a process that was paused wakes up with nothing of late.
    """

    def __init__(self) -> None:
        self._seen = 0

    def look(self, is_so: bool) -> bool:
        self._seen = self._seen + 1 if is_so else 0
        return self._seen >= LOOKS
