"""Driver's side of the data pipeline; executors load `pyspark_pulljobs`."""
