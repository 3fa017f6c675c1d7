"""Django's admin of batches and workflows."""

from pulljobs.workflows.admin import batches, runs

__all__ = ["batches", "runs"]
