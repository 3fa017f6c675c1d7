"""Batches and workflows, both made of ordinary jobs.

`pulljobs.batches` is the public module of batches.
"""
