"""Routes of batches and workflows in the HTTP API."""
