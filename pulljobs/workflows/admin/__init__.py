"""Django's admin of batches and workflows."""

from pulljobs.workflows.admin import runs

__all__ = ["runs"]
