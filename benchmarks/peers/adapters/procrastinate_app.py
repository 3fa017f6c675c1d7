"""App of procrastinate, which its worker imports by name."""

import logging

import common
import procrastinate

logging.disable(logging.INFO)  # its worker logs each job

app = procrastinate.App(connector=procrastinate.PsycopgConnector(max_size=20))


@app.task(name="job")
async def job(**payload):
    await common.ahandle(payload)
