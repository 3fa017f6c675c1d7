"""HTTP API of schedules, for Django users with permissions for the model Schedule."""
