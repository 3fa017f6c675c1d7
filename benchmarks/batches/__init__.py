"""Cost of members of batches, and a proof that batches call back once while workers are killed."""
