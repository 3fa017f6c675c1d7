"""Side of Spark's driver of the lake, on Django. `pyspark_pulljobs` is that of its executors."""
