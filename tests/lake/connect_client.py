"""Client of a Spark Connect server: `python -m tests.lake.connect_client ORDERS_AS_JSON`.

It publishes, reads and streams with the Python API, as the guide shows, and with commands.
"""

import json
import sys
from pathlib import Path
from typing import Any

import django


def main(orders: dict[str, Any]) -> None:
    django.setup()
    from django.conf import settings
    from django.core.management import CommandError, call_command
    from django.test import override_settings

    from pulljobs.errors import ConfigurationError
    from pulljobs.lake.spark import session
    from tests.guides import modules_of
    from tests.sessions import wait_for_other_transactions

    spark = modules_of("guides/clusters.md")["shop.connecting"].connect(orders["url"])
    given = {"dsn": session.dsn(), "channel": orders["channel"]}
    rows = spark.range(orders["rows"]).selectExpr("cast(id AS string) AS payload")
    rows.write.format("pulljobs").mode("append").options(**given).save()
    jobs = spark.read.format("pulljobs").options(dsn=given["dsn"], table="jobs").load()
    print("jobs", jobs.count())
    stream = spark.readStream.format("pulljobs").options(
        **given, consumer=orders["consumer"], maxRowsPerBatch=orders["rows"] // 2
    )
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", f"{orders['folder']}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print("batches", len([progress for progress in query.recentProgress if progress.numInputRows]))
    spark.stop()

    def run(*words: str) -> None:
        wait_for_other_transactions()
        call_command("pulljobs", "lake", *words, "--remote", orders["url"])

    messages = Path(orders["folder"], "messages.txt")
    messages.write_text("more\n" * orders["rows"])
    run("publish", str(messages), "--channel", orders["channel"])
    place = ("--channel", orders["channel"], "--consumer", orders["consumer"])
    handler = ("--form", "arrow", "--handler")
    with override_settings(PULLJOBS={**settings.PULLJOBS, "LAKE": "s3://out/of/reach"}):
        try:
            run("consume", *place, *handler, "tests.lake.handled:fails_its_query")
        except CommandError as error:
            print(error)
    run("consume", *place, *handler, "tests.lake.handled:is_fine")
    run("export")
    run("rollup")
    try:
        with session.open_session("refused", master=orders["url"], conf=[("spark.x.y", "1")]):
            pass
    except ConfigurationError as error:
        print(error)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
