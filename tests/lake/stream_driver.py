"""Spark driver in a process of its own: one query over the available jobs.

python -m tests.lake.stream_driver '{"source": {}, "sink": {}, "format": "", ...}'
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import django


def main(given: dict[str, Any]) -> None:
    django.setup()
    given["source"]["driver"] = str(os.getpgrp())
    if given["format"] == "dying":
        given["sink"]["driver"] = str(os.getpgrp())
    from pulljobs.lake.spark import session
    from tests.lake.dying import DyingSource

    with session.open_session("driver", master="local[2]", conf=given["conf"].items()) as spark:
        spark.dataSource.register(DyingSource)
        jobs = spark.readStream.format("dying").options(**given["source"]).load()
        if given["format"] == "parquet":
            _watch(given)
            jobs = jobs.select("job_id", "message_id")
        else:
            jobs = jobs.selectExpr("payload", "cast(job_id as string) as key")
        writing = jobs.writeStream.format(given["format"]).options(**given["sink"])
        writing = writing.option("checkpointLocation", given["checkpoint"])
        writing.trigger(availableNow=True).start().awaitTermination()


def _watch(given: dict[str, Any]) -> None:
    """Start a thread that kills this process between the commits of the Parquet sink and of Spark.

    The points in `given` name the batches, as `written@NUMBER`. Without any, it does nothing.
    """
    from tests.lake.dying import Fate

    fate, directory = (
        Fate.from_options(given["source"]),
        Path(given["sink"]["path"], "_spark_metadata"),
    )
    points = [point.partition("@") for point in fate.points]
    awaited = [int(number) for name, _at, number in points if name == "written"]

    def look() -> None:
        while True:
            for number in awaited:
                if (directory / str(number - 1)).exists():
                    fate.meet(f"written@{number}")
            time.sleep(0.001)

    if awaited:
        threading.Thread(target=look, daemon=True).start()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
