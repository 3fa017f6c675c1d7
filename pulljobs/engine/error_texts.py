"""Texts of exceptions as outcomes store them: class and message in the first line."""

import traceback


def format_error(error: BaseException) -> str:
    """Return the class and message of an error in the first line, then its traceback.

    Lists of jobs show only that line. For a group of exceptions, it also names the first of them.
    """
    return "".join([_describe(error), "\n\n", *traceback.format_exception(error)])


def format_reason(error: BaseException) -> str:
    """Return `str(error)`, or the result of `format_error` if `str` raises an exception."""
    try:
        return str(error)
    except BaseException:
        return format_error(error)


def _describe(error: BaseException) -> str:
    # The text of a SyntaxError starts with indented lines that show the place.
    lines = traceback.format_exception_only(error)
    first = next(line for line in lines if not line.startswith(" ")).rstrip("\n")
    if isinstance(error, BaseExceptionGroup):
        head = first.partition("\n")[0]
        return f"{head}: {_describe(error.exceptions[0])}"
    return first
