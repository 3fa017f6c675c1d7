"""The lake: history exported to Delta tables with Spark, rollups of it, streams and bulk publishes.

A Django app of its own. Without `pulljobs.lake` in INSTALLED_APPS nothing here is imported or
migrated.
"""
