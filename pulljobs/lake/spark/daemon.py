"""Where Spark's Python workers on this machine are forked off, with all that tasks load.

`python -m pulljobs.lake.spark.daemon MODULE`, by Spark, in place of its own `pyspark.daemon`, whose
workers each take seconds to load Arrow, pandas and the drivers, all at the same time.
"""

import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Final

OF_TASKS: Final = ("pyspark.worker", "pyspark_pulljobs.writing", "pyspark_pulljobs.staging")


def main() -> None:
    sys.path[:] = [place for place in sys.path if not _is_archive_of_installed(Path(place))]
    if sys.argv[1:2] == ["pyspark.worker"]:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # a fork has one thread
        for module in OF_TASKS:
            import_module(module)
    import_module("pyspark.daemon").manager()


def _is_archive_of_installed(place: Path) -> bool:
    """Spark's Python modules, which are installed beside it too: there they are compiled."""
    if place.suffix != ".zip" or len(place.parents) < 4:
        return False
    spark, packages = place.parents[2], place.parents[3]
    return (spark / "__init__.py").exists() and str(packages) in sys.path


if __name__ == "__main__":
    main()
