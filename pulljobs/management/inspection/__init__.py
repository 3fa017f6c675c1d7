"""What `manage.py pulljobs inspect` tells of each kind of thing.

Every module has `inspect(name)`; all but that of jobs have `listed()` for where none is named.
"""
