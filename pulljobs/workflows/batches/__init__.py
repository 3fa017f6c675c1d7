"""Batches: publishing of members, completion with its callbacks, and what users see of them."""
