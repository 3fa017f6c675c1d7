"""App of procrastinate, which its worker imports by name."""

import common
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(max_size=20))


@app.task(name="job")
async def job(**payload):
    await common.ahandle(payload)
