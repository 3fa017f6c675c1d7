"""Daemon that forks Spark's Python workers on this machine, with the modules of tasks loaded.

Spark runs `python -m pulljobs.lake.spark.daemon MODULE` in place of its own `pyspark.daemon`, whose
workers each take seconds to load Arrow, pandas and the drivers, all at the same time.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

TASK_MODULES: Final = (
    "pyspark.worker",
    "pandas",
    "pyspark_pulljobs.adbc",
    "pyspark_pulljobs.staging",
    "pyspark_pulljobs.writing",
)


def main() -> None:
    sys.path[:] = [place for place in sys.path if not _is_archive_of_installed(Path(place))]
    if sys.argv[1:2] == ["pyspark.worker"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork has one thread
        for module in TASK_MODULES:
            import_module(module)
    import_module("pyspark.daemon").manager()


def _is_archive_of_installed(place: Path) -> bool:
    """Return True if the path is the zip of Spark's Python modules inside an installed pyspark."""
    if place.suffix != ".zip" or len(place.parents) < 4:
        return False
    spark, packages = place.parents[2], place.parents[3]
    return (spark / "__init__.py").exists() and str(packages) in sys.path


if __name__ == "__main__":
    main()
