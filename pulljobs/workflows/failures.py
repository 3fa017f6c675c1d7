"""Exceptions of steps that a workflow caught, stored so that a replay raises them again."""

import builtins
import json
import sys
from collections.abc import Mapping
from typing import Any

from pulljobs.conf import settings
from pulljobs.engine.error_texts import format_error
from pulljobs.engine.outcomes import result_text
from pulljobs.errors import StepFailed
from pulljobs.outcome_texts import clean


def encode_failure(error: Exception) -> str:
    """Return an exception as JSON: its class, those attributes that are JSON, and its text."""
    kind = type(error)
    stored = {
        "class": f"{kind.__module__}:{kind.__qualname__}",
        "args": _json_or(list(error.args), [clean(str(error))]),
        "attributes": {
            name: value for name, value in vars(error).items() if _json_or(value, error) is value
        },
        "text": clean(format_error(error)),
    }
    text = json.dumps(stored, ensure_ascii=False)
    try:
        return result_text(text, settings().MAX_RESULT_BYTES)
    except ValueError:  # Too large: its text alone, of which the middle may be cut out.
        brief = {**stored, "args": [clean(str(error))], "attributes": {}}
        return result_text(json.dumps(brief, ensure_ascii=False), sys.maxsize)


def decode_failure(name: str, stored: Mapping[str, Any]) -> Exception:
    """Return the stored exception of a step, or StepFailed if its class is not loaded.

    The exception is made without a call of `__init__`, as by `pickle`. No module is imported,
    because the code that catches the exception has imported its class.
    """
    module, _, path = str(stored.get("class", "")).partition(":")
    kind: Any = sys.modules.get(module, builtins)
    for part in path.split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        return StepFailed(name, str(stored.get("text", "")))
    error = kind.__new__(kind, *stored["args"])
    error.args = tuple(stored["args"])
    vars(error).update(stored["attributes"])
    return error


def _json_or(value: Any, default: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return default
    return value
