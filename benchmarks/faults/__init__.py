"""`python -m benchmarks faults`: break what can break under processes, and judge what they did.

The directing process (`director`) owns a server and starts publishers, workers and raw claimers.
Each writes what it did to a file of its own (`history`, written by `witness`); the director breaks
things (`kinds`) and at the end holds the files against the tables (`checker`). This package is also
the Django app of those processes: its handlers, and what `apps` puts around the storage verbs.
"""
