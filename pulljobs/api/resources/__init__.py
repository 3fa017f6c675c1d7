"""How channels, producers, consumers, messages and jobs look in JSON, with the protocol's keys."""

from pulljobs.api.resources.counts import count, words
from pulljobs.api.resources.jobs import dead_job, id_of, job
from pulljobs.api.resources.messages import message, scheduled_message
from pulljobs.api.resources.registry import channel, consumer, name_of, producer

__all__ = [
    "channel",
    "consumer",
    "count",
    "dead_job",
    "id_of",
    "job",
    "message",
    "name_of",
    "producer",
    "scheduled_message",
    "words",
]
