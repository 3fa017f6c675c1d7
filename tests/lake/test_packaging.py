"""The archive of `lake package` has all that tasks import, on a Python without packages."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pyspark
import pytest
from django.core.management import CommandError, call_command

pytestmark = pytest.mark.slow
IMPORTED = (
    "pyspark_pulljobs.writing", "pyspark_pulljobs.staging", "pyspark_pulljobs.stream",
    "pyspark_pulljobs.lake_files", "pyspark_pulljobs.tasks", "pandas", "duckdb", "shop.scoring",
)  # fmt: skip


def test_tasks_import_everything_from_the_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The archive also has the modules and packages that `--include` names."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "scoring.py").write_text("import duckdb\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    archive = tmp_path / "archive.tar"
    included = ("--include", "shop.scoring", "--include", "duckdb")
    call_command("pulljobs", "lake", "package", str(archive), *included)
    flag = f"--conf spark.archives={archive}#pulljobs-package"
    assert flag in capsys.readouterr().out
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "worker", filter="data")
    assert import_on_worker(tmp_path / "worker") == list(IMPORTED)


def import_on_worker(folder: Path) -> list[str]:
    """Import the modules of tasks in a Python with the unpacked archive and without other packages.

    Return the names of the modules that it has imported.
    """
    spark = [str(path) for path in Path(pyspark.__path__[0], "python", "lib").glob("*.zip")]
    code = f"for name in {IMPORTED}: __import__(name); print(name)"
    ran = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=folder,
        env={"PYTHONPATH": os.pathsep.join([*spark, str(folder)]), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("x.zip",), "x.zip must end with .tar.gz, .tgz, .tar"),
        (("x.tar", "--include", "nothing.of.it"), "no module or installed distribution 'nothing'"),
        (("x.tar", "--include", "./shop"), "no module or installed distribution './shop'"),
        (("x.tar", "--include", ""), "no module or installed distribution ''"),
        (("nowhere/x.tar",), "nowhere/x.tar cannot be written: .*No such file or directory"),
    ],
)
def test_wrong_arguments_are_one_line_and_leave_no_file(
    tmp_path: Path, arguments: tuple[str, ...], error: str
) -> None:
    name, *flags = arguments
    with pytest.raises(CommandError, match=error):
        call_command("pulljobs", "lake", "package", str(tmp_path / name), *flags)
    assert list(tmp_path.iterdir()) == []
