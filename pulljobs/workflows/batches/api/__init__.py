"""HTTP API of batches, for users of Django with the permissions of the model."""
