"""procrastinate with a lock for each key: one job of a key runs at a time, in order."""

import os

import common
from procrastinate_app import app, job
from procrastinate_peer import migrate, work

KEYS = int(os.environ["PEER_KEYS"])


async def publish(payloads):
    async with app.open_async():
        for payload in payloads:
            await job.configure(lock=str(payload["number"] % KEYS)).defer_async(**payload)


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
