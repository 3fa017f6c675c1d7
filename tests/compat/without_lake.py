"""Run the tests of the core as if Spark were not installed: python -m tests.compat.without_lake.

Arguments are those of pytest. The default is every test of the core. Imports of the lake, schedules
and workflows, and of what they need, fail.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

import pytest

REFUSED: Final = (
    "pulljobs.lake",
    "pulljobs.schedules",
    "pulljobs.workflows",
    "pulljobs.batches",
    "cronsim",
    "pyspark_pulljobs",
    "pyspark",
    "pyarrow",
    "deltalake",
)
ELSEWHERE: Final = (
    "tests/lake",
    "tests/schedules",
    "tests/workflows",
    "tests/docs",
    "tests/compat",
    "tests/quality",
)
"""Tests of the refused apps, and tests of sources and documents, which include theirs."""


class Refusal(MetaPathFinder):
    """Import finder that refuses the modules in `REFUSED`, as if they were not installed."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ModuleNotFoundError for a refused module, and leave others to other finders."""
        if any(fullname == name or fullname.startswith(f"{name}.") for name in REFUSED):
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def main(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments and refused imports. Return its exit code."""
    sys.meta_path.insert(0, Refusal())
    chosen = arguments or ["tests", *(f"--ignore={folder}" for folder in ELSEWHERE)]
    return int(pytest.main(["--ds=tests.compat.core_settings", *chosen]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
