import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from example_project.state import BASE_DIR

PACKAGES = ("pulljobs", "pyspark_pulljobs")
INPUTS = ("pyproject.toml", "README.md", "LICENSE", *PACKAGES)
NOT_SHIPPED = {".pyc"}


def test_wheel_has_every_file_of_the_packages(tmp_path: Path) -> None:
    """The wheel has every file of the packages and no other file.

    It is built from a copy, because setuptools also packs old files in `build/`.
    """
    source = tmp_path / "source"
    source.mkdir()
    for name in INPUTS:
        _copy(BASE_DIR / name, source / name)
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("*.whl")
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to(source))
        for package in PACKAGES
        for path in (source / package).rglob("*")
        if path.is_file() and path.suffix not in NOT_SHIPPED
    }
    assert packed == expected
    assert any(name.endswith(".sql") for name in packed)
    assert {f"{package}/py.typed" for package in PACKAGES} <= packed, "type checkers see no types"


def _copy(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    elif source.exists():
        shutil.copy(source, target)
