"""Driver's side of the lake, on Django. `pyspark_pulljobs` is the side of Spark's executors."""
