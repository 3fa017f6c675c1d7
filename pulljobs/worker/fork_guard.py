"""Fork guard: a process that a handler forks never goes on as a worker.

Such a copy would run the jobs that wait in memory a second time, and settle them over the
connections of its parent.
"""

import os
import sys
from typing import NoReturn

is_forked = False
"""True in a forked copy. It is a plain global, because every run of a handler reads it."""


def install() -> None:
    """Have every process that this process forks from now on set `is_forked`."""
    os.register_at_fork(after_in_child=_mark_as_forked)


def exit_copy() -> NoReturn:
    """End this forked copy at once, with the exit status that the current exception means."""
    error = sys.exception()
    status = error.code if isinstance(error, SystemExit) else error
    os._exit(status & 0xFF if isinstance(status, int) else int(status is not None))


def _mark_as_forked() -> None:
    global is_forked
    is_forked = True
