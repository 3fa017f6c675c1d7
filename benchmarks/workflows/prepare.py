"""Creation of the tables and consumers of `workflow-faults`, with LEASE_DURATION in seconds."""

import sys
from datetime import timedelta
from typing import Final

import django

WITHOUT_END: Final = 10_000
"""Limit of retries and deliveries, so that no job dies because its worker is killed."""
EFFECTS: Final = "CREATE TABLE proof_effect (run_id bigint NOT NULL, part int NOT NULL)"


def prepare(lease_duration: float) -> None:
    """Migrate, and register the handlers with consumers whose retries have practically no limit."""
    from django.core.management import call_command
    from django.db import connection

    from pulljobs import handlers
    from pulljobs.models import Channel, Consumer

    call_command("migrate", verbosity=0)
    handlers.autodiscover()
    handlers.sync_consumers()
    Channel.objects.get_or_create(name="callbacks")
    for consumer in Consumer.objects.all():
        consumer.lease_duration = timedelta(seconds=lease_duration)
        consumer.retry_strategy = "constant:0.1"
        consumer.max_retries = consumer.max_deliveries = WITHOUT_END
        consumer.save()
    with connection.cursor() as cursor:
        cursor.execute(EFFECTS)


if __name__ == "__main__":
    django.setup()
    prepare(float(sys.argv[1]))
