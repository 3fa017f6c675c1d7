"""Programs of the processes that a director starts, and what they share."""
