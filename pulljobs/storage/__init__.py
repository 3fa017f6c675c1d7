"""The statements of `pulljobs.engine.sql`, run on Django's connections.

Each verb joins the caller's transaction if there is one and is a transaction of its own otherwise.
Whatever a verb does not return it did not touch.
"""
