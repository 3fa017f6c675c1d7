"""The Spark data source `pulljobs`, and all that Spark's executors load: nothing of Django here.

    spark.read.format("pulljobs")          reading      archive, messages or live jobs
    df.write.format("pulljobs")            publishing   jobs by the million
    spark.readStream.format("pulljobs")    streaming    a consumer's jobs, under leases
    writeStream.format("pulljobs")         sink         published once a micro-batch

Spark finds it by the name of this package where it runs on the driver's own Python; elsewhere
`spark.dataSource.register(DefaultSource)` makes it known. Classes travel by reference, so this
wheel must be installed on the executors. Modules are loaded only where they are needed.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

import pulljobs.lake.sql  # noqa: F401  adds the statements of this package


class DefaultSource(DataSource):
    """Options are the modules' own; `dsn` is common to all, and never holds a password."""

    @classmethod
    def name(cls) -> str:
        return "pulljobs"

    def schema(self) -> StructType | str:
        """A consumer's jobs where the options name one, else the rows of a table."""
        if "consumer" in self.options:
            from pyspark_pulljobs.streaming import schema as of_jobs

            return of_jobs(self.options)
        from pyspark_pulljobs.reading import schema as of_table

        return of_table(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_pulljobs.reading import reader

        return reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_pulljobs.publishing import writer

        return writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_pulljobs.streaming import reader

        return reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_pulljobs.sink import writer

        return writer(self.options, schema, overwrite)
