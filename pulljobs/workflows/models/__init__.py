"""Tables of batches and workflows. Only statements of `pulljobs.workflows.sql` write their rows."""

from pulljobs.workflows.models.batches import Batch, BatchPart

__all__ = ["Batch", "BatchPart"]
