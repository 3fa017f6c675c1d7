"""Results of `manage.py pulljobs inspect KIND [NAME]`, with one module for each kind of row.

Its `inspect(name)` describes one row. All kinds except jobs have `list_all()`, for a command
without a name.
"""
