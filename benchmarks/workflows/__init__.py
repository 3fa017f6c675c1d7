"""Workflows and batches: rates and latencies next to other libraries, and a proof under faults.

    python -m benchmarks workflows          rates, latencies, sleeping runs, a large batch
    python -m benchmarks workflow-faults    killed processes and lost connections

This package is also the Django app of the second command's processes.
"""
