import os

import common

from pulljobs.handlers import ClaimedJob, handler

declare = handler(channel="jobs", consumer="peer")

if os.environ["PEER_NAME"] == "pulljobs-async":

    @declare
    async def job(job: ClaimedJob) -> None:
        await common.ahandle(job.json())

else:

    @declare
    def job(job: ClaimedJob) -> None:
        common.handle(job.json())
