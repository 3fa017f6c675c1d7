"""Files with which sessions of Spark start in half of the processor time.

They are an archive of the classes that a JVM loads, and a home directory of Spark without its
archive of Python modules.

`python -m tests.lake.class_archive DIRECTORY` makes both. Java ignores an archive of another Java.
"""

import fcntl
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark

JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the JVM: no test runs long enough for the optimizing compiler to pay off."""
QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off"
ARCHIVE: Final = "spark.jsa"
WRITE_SECONDS: Final = 300
PARTS: Final = ("bin", "jars", "sbin")


def variables_of(directory: Path, *, has_archive: bool) -> dict[str, str]:
    """Return environment variables for processes that start sessions with the files in a directory.

    The first caller makes the files. With `has_archive` they include the archive of classes.
    """
    home = home_without_archive(directory)
    archive = directory / ARCHIVE
    java = f"{JAVA} {QUIET} -XX:SharedArchiveFile={archive}" if has_archive else JAVA
    if has_archive and not archive.exists():
        command = [sys.executable, "-m", "tests.lake.class_archive", str(directory)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {"SPARK_HOME": str(home), "JAVA_TOOL_OPTIONS": java}


def home_without_archive(directory: Path) -> Path:
    """Make a home directory of Spark without its archive of Python modules, and return it.

    Python workers then load the installed modules. They would compile those of the archive again
    in every process.
    """
    home = directory / "home"
    home.mkdir(parents=True, exist_ok=True)
    for part in PARTS:
        with suppress(FileExistsError):  # of another process of xdist
            (home / part).symlink_to(Path(pyspark.__file__).parent / part)
    return home


def make(directory: Path) -> None:
    """Make a home directory and an archive of classes, unless another process has made them."""
    os.environ["SPARK_HOME"] = str(home_without_archive(directory))
    archive = directory / ARCHIVE
    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            write(archive)


def write(archive: Path) -> None:
    """Run a query in a new session, and let its JVM write the classes that it loaded to a file."""
    draft = archive.with_suffix(".draft")
    os.environ["JAVA_TOOL_OPTIONS"] = f"{JAVA} {QUIET} -XX:ArchiveClassesAtExit={draft}"
    from pyspark.sql import SparkSession

    from pulljobs.lake.spark import java

    java.use(os.environ)
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    started = builder.getOrCreate()
    started.range(100).selectExpr("id % 7 AS part").groupBy("part").count().collect()
    gateway = started.sparkContext._gateway
    assert gateway
    started.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends
    gateway.proc.wait(WRITE_SECONDS)
    draft.rename(archive)


if __name__ == "__main__":
    make(Path(sys.argv[1]))
