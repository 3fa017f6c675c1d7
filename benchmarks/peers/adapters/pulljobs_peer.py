"""pulljobs: handlers in threads or coroutines, claims and settlements in batches, an archive."""

import os
import sys

import common
import django

FLAGS = {
    "pulljobs": (),
    "pulljobs-async": ("--async-concurrency", "500"),  # As many as pgqueuer runs.
}

os.environ["DJANGO_SETTINGS_MODULE"] = "django_settings"
django.setup()


def migrate():
    from django.core.management import call_command

    from pulljobs import handlers

    call_command("migrate", verbosity=0)
    handlers.autodiscover()
    handlers.sync_consumers()


def publish(payloads):
    from pulljobs.publishing import publish

    for payload in payloads:
        publish("jobs", payload)


def publish_many(batches):
    from pulljobs.publishing import publish_many

    for batch in batches:
        publish_many("jobs", batch)


def work(processes):
    command = [sys.executable, "-m", "django", "runpullworker", "--processes", str(processes)]
    os.execvp(command[0], [*command, *FLAGS[os.environ["PEER_NAME"]]])


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
