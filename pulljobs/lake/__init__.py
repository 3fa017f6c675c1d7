"""The lake: history exported to Delta tables, its rollups, and streams and bulk publishes by Spark.

It is a Django app of its own. Without `pulljobs.lake` in INSTALLED_APPS nothing here is imported or
migrated.
"""
