"""Claims over any session of PostgreSQL: Django's connections and Spark's sources share them.

Nothing of Django here. What a claim has to mind (floors, keys, bounds) is the same for every door.
"""
