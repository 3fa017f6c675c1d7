"""Spark data source `pulljobs`, and the code that Spark executors load, without Django.

By call of Spark, the module that serves it, and what it is for:

    spark.read.format("pulljobs")          reading      archive, messages or live jobs
    df.write.format("pulljobs")            bulk_writer  rows become messages, millions at a time
    spark.readStream.format("pulljobs")    streaming    a consumer's jobs, under leases
    writeStream.format("pulljobs")         sink         micro-batches become messages, each once

Spark finds the data source by the name of this package if Spark runs on the driver's own Python.
Otherwise call `spark.dataSource.register(DefaultSource)`. Spark pickles classes by reference, so
this wheel must be installed on the executors. Each method imports its module when it is called.
"""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

import pulljobs.lake.sql  # noqa: F401  registers the SQL statements of this package


class DefaultSource(DataSource):
    """Data source `pulljobs`. Every use needs the option `dsn`, without a password."""

    @classmethod
    def name(cls) -> str:
        return "pulljobs"

    def schema(self) -> StructType | str:
        """Return the columns: of a stream if the option `consumer` is given, else of `table`."""
        if "consumer" in self.options:
            from pyspark_pulljobs.streaming import schema as stream_schema

            return stream_schema(self.options)
        from pyspark_pulljobs.reading import schema as table_schema

        return table_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        from pyspark_pulljobs.reading import reader

        return reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from pyspark_pulljobs.bulk_writer import writer

        return writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from pyspark_pulljobs.streaming import reader

        return reader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from pyspark_pulljobs.sink import writer

        return writer(self.options, schema, overwrite)
