"""Workflows: rates and latencies next to other libraries, and a proof under faults.

    python -m benchmarks workflows          rates, latencies, sleeping runs
    python -m benchmarks workflow-faults    runs whose processes are killed and cut off

This package is also the Django app of the second command's processes.
"""
