from datetime import timedelta

from pulljobs import batches
from pulljobs.errors import Discard
from pulljobs.handlers import ClaimedJob, handler


@handler(channel="members", consumer="work", lease_duration=timedelta(seconds=5), max_retries=100)
def work(job: ClaimedJob) -> None:
    """Deliver a member, but reject one with the payload `dies` until its batch was redriven."""
    if job.payload != b"dies":
        return
    own = batches.find_batch(job.id)
    if own is not None and not batches.get(own.id).redriven:
        raise Discard("marked")


@handler(channel="callbacks", consumer="work")
def take_callback(job: ClaimedJob) -> None:
    pass
