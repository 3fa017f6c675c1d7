"""Declarations with one mistake each, for the system check."""

from pulljobs import schedules
from pulljobs.handlers import ClaimedJob, handler


@schedules.every(cron="0 25 * * *")
@handler(channel="reports", consumer="daily")
def write_report(job: ClaimedJob) -> None:
    pass


schedules.declare("fine", "reports", cron="0 6 * * *")
schedules.declare("zone", "reports", cron="0 6 * * *", timezone="Berlin")
schedules.declare("spelling", "reports", cron="0 6 * * *", mised="all")
schedules.declare("fine", "reports", cron="0 7 * * *")
schedules.declare("lost", "report", cron="0 6 * * *")
