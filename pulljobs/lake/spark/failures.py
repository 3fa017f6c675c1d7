"""Errors of Spark in one line, instead of a stack trace of the JVM."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pulljobs.errors import LakeError, PulljobsError

PULLJOBS_ERROR: Final = re.compile(r"^pulljobs\.errors\.\w+: (?P<text>.+)$", re.MULTILINE)
PYTHON_ERROR: Final = re.compile(
    r"^(?P<text>[A-Za-z_][\w.]*(?:Error|Exception): .+)$", re.MULTILINE
)
MAX_CHARS: Final = 500


@contextmanager
def raising_lake_errors() -> Iterator[None]:
    """Turn errors of Spark into a LakeError, and leave other errors as they are."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except PulljobsError:
        raise
    except (PySparkException, Py4JError, ConnectionError) as error:  # the last: its JVM has died
        raise LakeError(summarize_error(error)) from error
    except RuntimeError as error:
        if "Java gateway" not in str(error):
            raise
        raise LakeError(f"Spark did not start: {error}") from error


def summarize_error(error: BaseException) -> str:
    """Return the last Python error of a task or a source, or the first line of Spark's error."""
    text = str(error)
    if ours := PULLJOBS_ERROR.findall(text):
        return str(ours[-1])[:MAX_CHARS]
    if raised := PYTHON_ERROR.findall(text):
        return f"Spark: {raised[-1]}"[:MAX_CHARS]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"Spark: {lines[0] if lines else type(error).__name__}"[:MAX_CHARS]
