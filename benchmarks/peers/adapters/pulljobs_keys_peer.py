"""pulljobs with keys: one job of each key at a time, or up to four with fair shares."""

import os

import common
import pulljobs_peer
from pulljobs_peer import work

KEYS = int(os.environ["PEER_KEYS"])
LIMITS = {
    "pulljobs-exclusive-keys": {"exclusive_keys": True},
    "pulljobs-4-a-key-fair": {"max_in_flight_per_key": 4, "fair_by_key": True},
}
pulljobs_peer.FLAGS.update(dict.fromkeys(LIMITS, pulljobs_peer.FLAGS["pulljobs"]))


def migrate():
    from pulljobs.models import Consumer

    pulljobs_peer.migrate()
    Consumer.objects.update(**LIMITS[os.environ["PEER_NAME"]])


def publish(payloads):
    from pulljobs.publishing import publish

    for payload in payloads:
        publish("jobs", payload, key=str(payload["number"] % KEYS))


def publish_many(batches):
    from pulljobs.publishing import Draft, publish_many

    for batch in batches:
        drafts = [Draft(payload=each, key=str(each["number"] % KEYS)) for each in batch]
        publish_many("jobs", drafts)


if __name__ == "__main__":
    common.run(migrate, publish, publish_many, work)
