"""Copies of a worker process that its handlers fork: none of them goes on as a worker.

It would run the jobs that wait in memory a second time, and say so on its parent's connections.
"""

import os
import sys
from typing import NoReturn

is_one = False
"""Whether this process is one; as cheap to ask as can be, for every job asks."""


def expect() -> None:
    """From now on whatever this process forks is one."""
    os.register_at_fork(after_in_child=_become_one)


def leave() -> NoReturn:
    """End at once, as a script would: with the status of its `sys.exit()`, 1 for another error."""
    error = sys.exception()
    status = error.code if isinstance(error, SystemExit) else error
    os._exit(status & 0xFF if isinstance(status, int) else int(status is not None))


def _become_one() -> None:
    global is_one
    is_one = True
