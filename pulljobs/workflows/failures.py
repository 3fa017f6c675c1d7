"""Exceptions of steps that a workflow caught, stored so that a replay raises them again."""

import builtins
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from pulljobs.conf import settings
from pulljobs.engine.error_texts import format_error, format_reason
from pulljobs.engine.outcomes import result_text
from pulljobs.errors import StepFailed
from pulljobs.outcome_texts import clean


def encode_failure(error: Exception) -> str:
    """Return an exception as JSON: its class and text, and arguments and attributes that are JSON.

    If that is larger than `MAX_RESULT_BYTES`, only the class and the text are kept.
    """
    stored = _describe(error)
    text = json.dumps(stored, ensure_ascii=False)
    try:
        return result_text(text, settings().MAX_RESULT_BYTES)
    except ValueError:  # Too large: only the text is stored, of which the middle may be cut out.
        brief = {**stored, "args": [clean(format_reason(error))], "attributes": {}, "members": []}
        return result_text(json.dumps(brief, ensure_ascii=False), sys.maxsize)


def _describe(error: Exception) -> dict[str, Any]:
    kind, text = type(error), clean(format_reason(error))
    members: Sequence[Exception] = ()
    if isinstance(error, ExceptionGroup):
        text, members = clean(error.message), error.exceptions
    return {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "args": _json_or(list(error.args), [text]),
        "attributes": {
            name: value for name, value in vars(error).items() if _json_or(value, error) is value
        },
        "text": clean(format_error(error)),
        "members": [_describe(each) for each in members],
    }


def decode_failure(name: str, stored: Mapping[str, Any]) -> Exception:
    """Return the stored exception of a step, or StepFailed if it can't be restored.

    No module is imported, because the code that catches the exception has imported its class.
    """
    kind = _find_class(str(stored.get("class", "")))
    if isinstance(kind, type) and issubclass(kind, Exception):
        args = stored["args"]
        if issubclass(kind, ExceptionGroup):
            args = [*args, [decode_failure(name, each) for each in stored.get("members", ())]]
        for make in (kind, partial(kind.__new__, kind)):
            with suppress(Exception):  # Its `__init__` may take other arguments than it stores.
                return _make(make, args, stored["attributes"])
    return StepFailed(name, str(stored.get("text", "")))


def _make(
    make: Callable[..., Exception], args: Sequence[Any], attributes: Mapping[str, Any]
) -> Exception:
    error = make(*args)
    error.args = tuple(args)
    vars(error).update(attributes)
    return error


def _find_class(path: str) -> Any:
    module, _, names = path.partition(":")
    value: Any = sys.modules.get(module, builtins)
    for name in names.split("."):
        value = getattr(value, name, None)
    return value


def _json_or(value: Any, default: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return default
    return value
