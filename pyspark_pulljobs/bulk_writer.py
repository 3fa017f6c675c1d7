"""Bulk publishes: `df.write.format("pulljobs")`.

    df.write.format("pulljobs").mode("append").options(dsn=..., channel="orders", publishId="1")

In mode `atomic` the tasks copy their rows to a staging table of the publish, and the driver
publishes all of them in one transaction. In mode `chunked` each task publishes its rows in one
transaction. In both modes a publish id publishes its rows once, even if tasks or the whole publish
fail, are repeated or run twice at the same time.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import columns, publish_ledger, requests, staging
from pyspark_pulljobs.atomic import AtomicWriter
from pyspark_pulljobs.chunked import ChunkedWriter
from pyspark_pulljobs.database_session import Session, open_session
from pyspark_pulljobs.publish_ledger import Publish, SinkBatch
from pyspark_pulljobs.requests import ATOMIC, Address, Request


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Open the publish that the options describe, and return Spark's writer for its mode.

    Spark calls this function once, in its driver. The function also aborts abandoned atomic
    publishes. Raise ConfigurationError for wrong options or columns, or UnknownChannel.
    """
    if overwrite:
        raise ConfigurationError('A publish only adds jobs: write with .mode("append").')
    request = requests.parse_request(options)
    columns.check(schema, replays=request.consumer is not None)
    with open_session(request.dsn) as session:
        address = requests.find_address(session, request)
        staging.clean(session)
        publish = open_publish(session, request, address)
    kind = AtomicWriter if request.mode == ATOMIC else ChunkedWriter
    return kind(request, address, publish)


def open_publish(
    session: Session, request: Request, address: Address, batch: SinkBatch | None = None
) -> Publish:
    """Insert or find the publish in the ledger. Create its staging table if atomic and not done."""
    with session.atomic():
        publish = publish_ledger.open_publish(session, request, address, batch)
        if request.mode == ATOMIC and not publish.is_done:
            staging.create(session, publish.id)
    return publish
