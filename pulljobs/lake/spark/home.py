"""Home of Spark on this machine, whose Python processes load the modules that are installed.

Spark puts an archive of its Python modules first on the path of all processes that it starts: of
workers, and of each step of a data source. They would compile its modules each time, which takes
seconds. A home without the archive has the same programs and the same Java classes.
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
"""Parts of the installed Spark that a home without Python modules needs."""


def use(environment: MutableMapping[str, str]) -> None:
    """Set SPARK_HOME to such a home, which is removed when this process ends.

    A home or a Python that the user chose stays: its workers may need the archive.
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
