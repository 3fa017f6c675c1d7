"""Actions for cron, and for those who want it done now."""

from typing import Final

from pulljobs import handlers, operating, pulling
from pulljobs.conf import settings
from pulljobs.management.actions import Action, Answer, Options
from pulljobs.storage import partitions


def sync_consumers(options: Options) -> Answer:
    handlers.autodiscover()
    rows = handlers.sync_consumers()
    return Answer({"consumers": [f"{row.channel.name}/{row.name}" for row in rows]})


def maintain(options: Options) -> Answer:
    upkeep = operating.maintain()
    return Answer(
        {
            "made": [partition.name for partition in upkeep.made],
            "dropped": [partition.name for partition in upkeep.dropped],
        }
    )


def list_partitions(options: Options) -> Answer:
    using = settings().DATABASE
    return Answer(
        {
            table: [partition.name for partition in partitions.existing(using, table)]
            for table in partitions.PARTITIONED
        }
    )


def reap(options: Options) -> Answer:
    given_back = 0
    while (jobs := pulling.reap()) is not None:
        given_back += jobs
    return Answer({"given_back": given_back})


ACTIONS: Final = {
    "syncconsumers": Action(
        sync_consumers, "make the rows that handlers name and the database lacks"
    ),
    "maintain": Action(
        maintain, "make partitions ahead, and drop those past PULLJOBS['RETENTION']"
    ),
    "partitions": Action(list_partitions, "list the partitions of messages and archive"),
    "reap": Action(reap, "give back what leases hold that are over, as every worker does"),
}
