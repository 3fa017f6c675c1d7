"""Faults under real processes, and rules that judge their histories: `python -m benchmarks faults`.

The directing process (`director`) owns a server and starts publishers, workers and other claimers.
Each process writes its actions to a file of its own (`history`, written by `witness`). The director
injects faults (`kinds`) and at the end compares the files with the tables (`checker`). This package
is also the Django app of those processes: it has their handlers, and `apps` records their calls.
"""
