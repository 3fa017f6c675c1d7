"""What runs in the processes that a director starts."""
