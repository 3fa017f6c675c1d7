"""Errors of Spark, of Java and of object stores, shortened to one line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from logging import LogRecord
from typing import Final

from pulljobs.errors import ConfigurationError, LakeError, PulljobsError

PULLJOBS_ERROR: Final = re.compile(r"^pulljobs\.errors\.\w+: (?P<text>.+)$", re.MULTILINE)
PYTHON_ERROR: Final = re.compile(
    r"^(?P<text>[A-Za-z_][\w.]*(?:Error|Exception): .+)$", re.MULTILINE
)
JAVA_ERROR: Final = re.compile(
    r"^(?:: |Caused by: )(?:[a-z_][\w$]*\.)+(?P<name>[A-Z][\w$]*)(?:: (?P<text>.+))?$", re.MULTILINE
)
"""Error of Java in the text of a failed call, or one of its causes."""
CALL: Final = "An error occurred while calling"
"""Begin of the text of a failed call of Java, which names no reason."""
NO_MODULE: Final = re.compile(r"No module named '(?P<name>\w+)")
"""Module that the Python of an executor lacks. Spark's driver has imported it before."""
JVM_ENDED: Final = "Spark's Java process ended: it was killed, or the machine ran out of memory."
STORE_CODE: Final = re.compile(r"<Code>(?P<code>[^<]+)</Code>\s*<Message>(?P<text>[^<]*)</Message>")
"""Code and message in the answer of an object store."""
STORE_STEP: Final = re.compile(r"\x1b\[[0-9;]*m|\u21b3")
"""Colours and arrows that separate nested causes in an error of the Delta library."""
STORE_REQUEST: Final = re.compile(r"Error performing (?P<request>[A-Z]+ \S+)")
"""Request to an object store."""
STORE_URL: Final = re.compile(r"(https?://)(?:[^/\s]*@)?([^\s?<]*)(?:\?[^\s<]*)?")
"""URL. Not in the groups are its user, password and parameters, which may be secret."""
MAX_CHARS: Final = 500
LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Loggers of PySpark for errors in queries."""


@contextmanager
def raising_lake_errors() -> Iterator[None]:
    """Raise errors of Spark as LakeError with one line. Other errors stay as they are."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        with _silence_spark():
            yield
    except PulljobsError:
        raise
    except (PySparkException, Py4JError, ConnectionError) as error:  # the last: its JVM has died
        raise LakeError(summarize_error(error)) from error
    except RuntimeError as error:
        if "Java gateway" not in str(error):
            raise
        raise LakeError(f"Spark did not start: {error}") from error


@contextmanager
def _silence_spark() -> Iterator[None]:
    """Suppress Spark's log records of errors in the block, which have traces in JSON."""
    from pyspark.logger import PySparkLogger

    def is_logged(record: LogRecord) -> bool:
        return False

    loggers = [PySparkLogger.getLogger(name) for name in LOGGERS]
    for logger in loggers:  # Each block has a filter of its own: threads may run several at a time.
        logger.addFilter(is_logged)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_logged)


@contextmanager
def raising_store_errors(location: str) -> Iterator[None]:
    """Raise errors of the lake's files and of its Delta log as LakeError.

    The text of the LakeError names the location.
    """
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as error:
        reason = summarize_store_error(error)
        raise LakeError(f"The lake at {location} cannot be used: {reason}") from error


@contextmanager
def raising_connection_errors() -> Iterator[None]:
    """Raise as LakeError the errors of connections that this process opens to read rows.

    The code that runs without Django raises ConfigurationError for them. But the settings are
    right, because Django connects with them, so the caller can repeat its work later.
    """
    try:
        yield
    except ConfigurationError as error:
        raise LakeError(str(error)) from error


def summarize_error(error: BaseException) -> str:
    """Return one line about an error of Spark: the error of a task, else the reason of Java.

    The last Python error in the text is that of the task or of the data source.
    """
    text = str(error)
    if isinstance(error, ConnectionError) or type(error).__name__ == "Py4JNetworkError":
        return JVM_ENDED
    if missing := NO_MODULE.search(text):
        return (
            f"Spark's workers have no module {missing['name']!r}: install it there, or send it "
            "with the archive of `pulljobs lake package`."
        )
    if ours := PULLJOBS_ERROR.findall(text):
        return str(ours[-1])[:MAX_CHARS]
    if raised := PYTHON_ERROR.findall(text):
        return f"Spark: {raised[-1]}"[:MAX_CHARS]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0] if lines else type(error).__name__
    if first.startswith(CALL):
        reason = _find_java_reason(text)
        return f"Spark: {reason}"[:MAX_CHARS] if reason else JVM_ENDED
    return f"Spark: {first}"[:MAX_CHARS]


def summarize_store_error(error: BaseException) -> str:
    """Return one line about an error of an object store.

    It is the code and message of the store's answer, or the request that failed and why, or else
    the steps of the error's description without the first, which names only the kind of store.
    """
    text = STORE_URL.sub(r"\1\2", str(error))
    if answer := STORE_CODE.search(text):
        return f"{answer['code']}: {answer['text']}"[:MAX_CHARS]
    steps = [" ".join(step.split()) for step in STORE_STEP.split(text) if step.strip()]
    if request := STORE_REQUEST.search(text):
        steps = ["", request["request"], steps[-1]]
    return ": ".join(steps[1:] or steps or [type(error).__name__])[:MAX_CHARS]


def _find_java_reason(text: str) -> str:
    """Return text and class of the innermost Java error that has a text, or an empty text."""
    known = [match for match in JAVA_ERROR.finditer(text) if match["text"]]
    return f"{known[-1]['text']} ({known[-1]['name']})" if known else ""
