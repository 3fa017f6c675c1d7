import common

from pulljobs.handlers import ClaimedJob, handler


@handler(channel="jobs", consumer="peer")
def job(job: ClaimedJob) -> None:
    common.handle(job.json())
