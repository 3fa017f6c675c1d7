"""Fork guard: a process that a handler forks never goes on as a worker.

Such a copy would run the jobs that wait in memory a second time, and settle them over the
connections of its parent. SIGTERM ends it, as it ends any other process.
"""

import os
import signal
import sys
from functools import partial
from typing import Final, NoReturn

SIGNALS: Final = (signal.SIGTERM, signal.SIGUSR1)
"""Signals that mean something else to the child process of a worker.

SIGHUP is not among them: a terminal that closes sends it to all processes, and running handlers may
finish then.
"""

is_forked = False
"""True in a forked copy. It is a plain global, because every run of a handler reads it."""


def install() -> None:
    """Have every process that this process forks from now on set `is_forked`, and end at SIGTERM.

    `SIGNALS` are blocked during the fork. Otherwise one that came at once would be lost.
    """
    os.register_at_fork(
        before=partial(signal.pthread_sigmask, signal.SIG_BLOCK, SIGNALS),
        after_in_parent=partial(signal.pthread_sigmask, signal.SIG_UNBLOCK, SIGNALS),
        after_in_child=_mark_as_forked,
    )


def exit_copy() -> NoReturn:
    """End this forked copy at once, with the exit status of the current exception, or 0."""
    error = sys.exception()
    status = error.code if isinstance(error, SystemExit) else error
    os._exit(status & 0xFF if isinstance(status, int) else int(status is not None))


def _mark_as_forked() -> None:
    global is_forked
    is_forked = True
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            # The handler of the worker would ignore it: `Pool.terminate` would wait for ever.
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
