"""Subcommands of `manage.py pulljobs prune`: each module deletes the kind of rows of its name."""
