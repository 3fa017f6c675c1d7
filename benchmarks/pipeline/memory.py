"""What the driver holds: its Python's peak, and what its JVM keeps after a collection."""

import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STATUS: Final = Path("/proc/self/status")
RESET: Final = Path("/proc/self/clear_refs")
MIB: Final = 1024 * 1024
COLLECTIONS: Final = 3


class Held(NamedTuple):
    python_mib: float
    """Resident, at its highest since `start`."""
    jvm_mib: float
    """Reachable objects, now."""


def start() -> None:
    if RESET.exists():
        RESET.write_text("5")


def held(spark: "SparkSession") -> Held:
    jvm = spark._jvm
    assert jvm is not None
    for _ in range(COLLECTIONS):
        jvm.java.lang.System.gc()
        time.sleep(1)  # Spark lets go of what a collection found unused, for the next to free
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    found = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    return Held(int(found[1]) / 1024 if found else 0.0, heap.getUsed() / MIB)
