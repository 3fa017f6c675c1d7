"""Kinds of rows that `manage.py pulljobs prune` deletes: each module is the kind of its name."""
