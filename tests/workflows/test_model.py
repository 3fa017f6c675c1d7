"""The models of runs and batches keep their invariants, and every way to break them is caught."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.requirements import require

MODELS: Final = Path(__file__).parent / "model"
BREAKS: Final = re.compile(r"^ \*   ([A-Z_]+)  ", re.MULTILINE)
"""Pattern of the macros that the header of a model lists, each of which breaks the model."""
NAMES: Final = ("run", "batch")
BROKEN: Final = [
    (name, macro)
    for name in NAMES
    for macro in BREAKS.findall((MODELS / f"{name}.pml").read_text("utf-8"))
]


def check(name: str, tmp_path: Path, *flags: str) -> str:
    """Search all states of a model with the model checker spin, and return its report."""
    commands = (
        (str(require("spin")), "-a", *flags, str(MODELS / f"{name}.pml")),
        (str(require("gcc")), "-O0", "-w", "-DSAFETY", "-o", "pan", "pan.c"),
        ("./pan", "-m10000", "-w20"),
    )
    for command in commands:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_design_keeps_its_invariants_in_every_state(name: str, tmp_path: Path) -> None:
    report = check(name, tmp_path)
    assert "errors: 0\n" in report, report
    assert "max search depth too small" not in report


@pytest.mark.parametrize(("name", "macro"), BROKEN)
def test_broken_design_violates_an_invariant(name: str, macro: str, tmp_path: Path) -> None:
    assert "assertion violated" in check(name, tmp_path, f"-D{macro}")
