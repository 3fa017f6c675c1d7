"""What a stream promises, by the calls that Spark makes; the crashes are in test_stream_crashes."""

import pytest

from pulljobs.models import ArchivedJob, Consumer, Lease, Node
from pulljobs.states import State
from tests.factories import ConsumerFactory, published
from tests.spark.streams import batch, job_ids, source, states

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


def test_a_batch_is_acked_when_spark_asks_for_the_next(consumer: Consumer) -> None:
    made = published(consumer, 15)
    with source(consumer) as stream:
        assert job_ids(stream.run()) == made[:10]
        assert states() == {State.INFLIGHT: 10, State.QUEUED: 5}
        assert job_ids(stream.run()) == made[10:]
        assert states() == {State.INFLIGHT: 5}
        assert stream.run() == []
        assert states() == {}
    assert set(ArchivedJob.objects.values_list("job_id", "state")) == {
        (job, State.DELIVERED) for job in made
    }
    assert not Lease.objects.exists()
    assert (batch(1).acked, batch(1).lost, batch(1).state) == (10, 0, "acked")


def test_a_stream_is_a_node_of_its_kind(consumer: Consumer) -> None:
    published(consumer)
    with source(consumer) as stream:
        stream.run()
        stream.plan()
    node = Node.objects.get()
    assert node.kind == Node.Kind.SPARK
    assert set(ArchivedJob.objects.values_list("node_id", flat=True)) == {node.pk}
