"""django-tasks-db: a worker runs one job at a time, so each process has a worker."""

import os
import sys

import common
import django

os.environ["DJANGO_SETTINGS_MODULE"] = "django_settings"
django.setup()


def migrate():
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def publish(payloads):
    from django_tasks_db_job import job

    for payload in payloads:
        job.enqueue(payload)


def work(processes):
    common.processes(
        processes,
        [sys.executable, "-m", "django", "db_worker", "--interval", "0.1", "--no-startup-delay"],
    )


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
