"""Output of `manage.py pulljobs ...`, for tests."""

import json
from contextlib import suppress
from io import StringIO
from typing import Any

from django.core.management import call_command


def answer(*arguments: str) -> tuple[Any, int]:
    """Run a verb with --json. Return its parsed output and its exit code."""
    output, code = StringIO(), 0
    try:
        call_command("pulljobs", *arguments, "--json", stdout=output)
    except SystemExit as ended:
        code = int(ended.code or 0)
    return json.loads(output.getvalue()), code


def text(*arguments: str) -> str:
    """Run a verb. Return its plain output."""
    output = StringIO()
    with suppress(SystemExit):
        call_command("pulljobs", *arguments, stdout=output)
    return output.getvalue()
