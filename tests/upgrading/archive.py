"""Archive of a commit as the older release: `python -m tests.upgrading.archive COMMIT`."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from example_project.state import BASE_DIR

ARCHIVE: Final = Path(__file__).with_name("older.tar.xz")
PATHS: Final = (
    "pulljobs",
    "benchmarks/__init__.py",
    "benchmarks/settings.py",
    "benchmarks/noop",
    "benchmarks/faults",
    "example_project/__init__.py",
    "example_project/settings.py",
    "example_project/state.py",
    "example_project/postgres",
    ":(exclude)pulljobs/templates",
    ":(exclude)pulljobs/static",
    ":(exclude)pulljobs/admin",
    ":(exclude)pulljobs/**/*.json",
)


def main(commit: str) -> None:
    """Write an archive of the files of a commit that its workers and publishers need."""
    command = ["git", "archive", "--format=tar", commit, *PATHS]
    tar = subprocess.run(command, cwd=BASE_DIR, check=True, stdout=subprocess.PIPE).stdout
    packed = subprocess.run(["xz", "-9e"], input=tar, check=True, stdout=subprocess.PIPE).stdout
    ARCHIVE.write_bytes(packed)


if __name__ == "__main__":
    main(sys.argv[1])
