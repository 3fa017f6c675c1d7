"""Functions that run the statements of `pulljobs.engine.sql` on Django's connections.

`using` is always the database alias. Functions that change jobs join the caller's transaction, or
are a transaction of their own, and return the jobs that they changed: they leave all others as they
were, for example because another process was faster.
"""
