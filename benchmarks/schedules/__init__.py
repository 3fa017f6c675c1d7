"""Schedules: the cost of a pass, lateness, and a proof under faults.

    python -m benchmarks schedules          cost and lateness
    python -m benchmarks schedule-faults    workers are killed while schedules fire

This package is also the Django app of the workers that the second command starts: it moves their
clocks.
"""
