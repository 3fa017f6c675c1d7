"""HTTP API of schedules, for users of Django with the permissions of the model."""
