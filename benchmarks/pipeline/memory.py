"""Memory of Spark's driver: the peak of Python, and the JVM's heap after garbage collection."""

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


class DriverMemory(NamedTuple):
    """Memory of the Spark driver in MiB."""

    python_mib: float
    """Highest resident memory since `start`."""
    jvm_mib: float
    """Heap of the objects that are reachable now."""


def start() -> None:
    """Reset the peak of the resident memory of this process, so that it counts from now on."""
    if RESET.exists():
        RESET.write_text("5")


def read_memory(spark: "SparkSession") -> DriverMemory:
    """Collect garbage in the JVM, and return the memory of the Spark driver."""
    jvm = spark._jvm
    assert jvm is not None
    for _ in range(COLLECTIONS):
        jvm.java.lang.System.gc()
        time.sleep(1)  # Spark drops objects that a collection found unused; the next frees them.
    heap = jvm.java.lang.management.ManagementFactory.getMemoryMXBean().getHeapMemoryUsage()
    peak = re.search(r"^VmHWM:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    return DriverMemory(int(peak[1]) / 1024 if peak else 0.0, heap.getUsed() / MIB)
