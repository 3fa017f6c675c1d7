"""Claims on any session of PostgreSQL, shared by Django's connections and Spark's sources."""
