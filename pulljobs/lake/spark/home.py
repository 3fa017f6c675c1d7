"""Directory for SPARK_HOME with which Python processes of Spark start in less time.

Spark puts an archive of its Python modules first on the path of all processes that it starts: of
workers, and of each step of a data source. They compile the archive's modules each time, which
takes seconds. A home without the archive has the same programs and the same Java classes, and these
processes load the installed modules.
"""

import atexit
import shutil
import sys
import tempfile
from collections.abc import MutableMapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

PARTS: Final = ("bin", "conf", "jars", "sbin")
"""Folders of the installed Spark that a home without Python modules needs."""


def use(environment: MutableMapping[str, str]) -> None:
    """Set SPARK_HOME to a temporary home without Spark's archive of Python modules.

    The home is removed when this process ends. Nothing is set if the user chose a SPARK_HOME or a
    PYSPARK_PYTHON, because Spark's workers may need the archive then. Nothing is set either if only
    a client of Spark Connect is installed.
    """
    spec = find_spec("pyspark")
    is_chosen = "SPARK_HOME" in environment or environment.get("PYSPARK_PYTHON") != sys.executable
    if is_chosen or spec is None or spec.origin is None:
        return
    installed = Path(spec.origin).parent
    if not (installed / "jars").is_dir():
        return  # a client of Spark Connect alone
    home = Path(tempfile.mkdtemp(prefix="pulljobs-spark-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    for part in PARTS:
        if (installed / part).exists():
            (home / part).symlink_to(installed / part)
    environment["SPARK_HOME"] = str(home)
