"""Schedules: rules by which messages are published again and again, every slot accounted for."""
