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
    command = [sys.executable, "-m", "django", "db_worker", "--interval", "0.1"]
    # Without this verbosity it logs each job.
    common.processes(processes, [*command, "--no-startup-delay", "--verbosity", "0"])


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
