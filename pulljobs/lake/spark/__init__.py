"""The driver's side of the data pipeline; what executors load is in `pyspark_pulljobs`."""
