"""django-q2 on its ORM broker: bulk dequeue, one cluster with several workers."""

import os
import sys

import common
import django

os.environ["DJANGO_SETTINGS_MODULE"] = "django_settings"
django.setup()


def job(payload):
    common.handle(payload)


def migrate():
    from django.core.management import call_command

    call_command("migrate", verbosity=0)


def publish(payloads):
    from django_q.brokers import get_broker
    from django_q.tasks import async_task

    broker = get_broker()
    for payload in payloads:
        async_task("django_q2_peer.job", payload, broker=broker)


def work(processes):
    os.environ["PEER_PROCESSES"] = str(processes)
    os.execvp(sys.executable, [sys.executable, "-m", "django", "qcluster"])


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
