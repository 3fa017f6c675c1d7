"""Archive of the classes that Spark's JVM loads: later sessions start in about half of the time.

The JVM of the first session on a machine writes the archive when it ends. Java ignores an archive
that does not fit, such as one of another Java or of another Spark.
"""

import hashlib
import os
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

QUIET: Final = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")
WRITE_SECONDS: Final = 30.0
"""Age of a draft after which its JVM has certainly written it."""


def choose_options(java: Path) -> list[str]:
    """Return options with which a JVM of this Java uses the archive, or writes it at its end.

    The list is empty if this Java has no archive of its own classes to build on, if the environment
    names another archive, or if the directory of the user's cache cannot be written to.
    """
    home = java.resolve().parent.parent
    if "ArchiveFile" in os.environ.get("JAVA_TOOL_OPTIONS", ""):
        return []
    if not (home / "lib" / "server" / "classes.jsa").exists():
        return []
    archive = _directory() / f"spark-{version('pyspark')}-{_digest(home)}.jsa"
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        _adopt_draft(archive)
    except OSError:
        return []
    if archive.exists():
        return [*QUIET, f"-XX:SharedArchiveFile={archive}"]
    return [*QUIET, f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}"]


def _directory() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(cache, "pulljobs")


def _digest(home: Path) -> str:
    return hashlib.sha256(str(home).encode()).hexdigest()[:12]


def _adopt_draft(archive: Path) -> None:
    """Use the draft of an earlier JVM. Each JVM has a draft of its own, which it writes at once."""
    for draft in archive.parent.glob(f"{archive.name}.*"):
        with suppress(FileNotFoundError):  # another process was faster
            if time.time() - draft.stat().st_mtime > WRITE_SECONDS:
                draft.replace(archive)
