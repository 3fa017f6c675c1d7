"""Batches: sets of jobs that call back once when all of them have ended."""
