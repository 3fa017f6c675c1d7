"""Batches: publishing of members, the decision that completes a batch, and what users see of it."""
