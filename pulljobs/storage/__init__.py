"""Statements of `pulljobs.engine.sql` on Django's connections.

Each verb joins the caller's transaction, or is a transaction of its own. A verb has not touched a
job that it does not return.
"""
