"""Output of `manage.py pulljobs inspect`, by the kind of the inspected row.

Every kind has a module with `inspect(name)`. All kinds except jobs have `list_all()`, for a command
without a name.
"""
