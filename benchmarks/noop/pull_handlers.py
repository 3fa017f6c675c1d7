from pulljobs.handlers import ClaimedJob, handler


@handler(channel="bench", consumer="noop")
def noop(job: ClaimedJob) -> None:
    pass
