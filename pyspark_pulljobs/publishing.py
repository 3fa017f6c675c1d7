"""`df.write.format("pulljobs")`: messages by the million.

    df.write.format("pulljobs").mode("append").options(dsn=..., channel="orders", publishId="1")

Mode `atomic`: tasks bring their rows to a table of the publish, and the driver publishes them all
in one transaction. Mode `chunked`: each task is a transaction that publishes its own rows. Both
happen once for a publish id: tasks may fail, run twice at a time and run again, and so may the
whole publish.
"""

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceWriter
from pyspark.sql.types import StructType

from pulljobs.errors import ConfigurationError
from pyspark_pulljobs import columns, ledger, requests, staging
from pyspark_pulljobs.atomic import AtomicWriter
from pyspark_pulljobs.chunked import ChunkedWriter
from pyspark_pulljobs.ledger import Batch, Opened
from pyspark_pulljobs.requests import ATOMIC, Address, Request
from pyspark_pulljobs.session import Session, opened


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceWriter:
    """Open the publish, and clean up after killed ones; called once, on the driver."""
    if overwrite:
        raise ConfigurationError('A publish only adds jobs: write with .mode("append").')
    request = requests.read(options)
    columns.check(schema, replays=request.consumer is not None)
    with opened(request.dsn) as session:
        address = requests.address(session, request)
        staging.clean(session)
        publish = open_publish(session, request, address)
    kind = AtomicWriter if request.mode == ATOMIC else ChunkedWriter
    return kind(request, address, publish)


def open_publish(
    session: Session, request: Request, address: Address, batch: Batch | None = None
) -> Opened:
    """With the table that its tasks write to, if it is an atomic one that is not done."""
    with session.atomic():
        publish = ledger.open_publish(session, request, address, batch)
        if request.mode == ATOMIC and not publish.done:
            staging.create(session, publish.id)
    return publish
