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


class DefaultSource(DataSource):
    """Options are the modules' own; `dsn` is common to all, and never holds a password."""

    @classmethod
    def name(cls) -> str:
        return "pulljobs"

    def schema(self) -> StructType | str:
        """A consumer's jobs where the options name one, else the rows of a table."""
        if "consumer" in self.options:
            from pyspark_pulljobs import streaming

            return streaming.schema(self.options)
        from pyspark_pulljobs import reading

        return reading.schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_pulljobs import reading

        return reading.reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_pulljobs import publishing

        return publishing.writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_pulljobs import streaming

        return streaming.reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_pulljobs import sink

        return sink.writer(self.options, schema, overwrite)
