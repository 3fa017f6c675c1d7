"""Proof that batches call back once while workers are killed."""
