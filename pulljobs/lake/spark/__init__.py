"""Driver's side of the data pipeline. Executors load `pyspark_pulljobs`."""
