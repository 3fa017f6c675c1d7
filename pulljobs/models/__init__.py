"""Models of the core. Only `pulljobs.storage` writes jobs, leases, messages and the archive."""

from pulljobs.models.archive import ArchivedJob, Attempt
from pulljobs.models.audit import AuditedBatch, AuditEntry
from pulljobs.models.batches import BatchSum
from pulljobs.models.channels import Channel, Producer
from pulljobs.models.consumers import Consumer
from pulljobs.models.counts import CountProgress, SettlementCount
from pulljobs.models.dashboard import Dashboard
from pulljobs.models.flow import FlowBucket, LimitGroup
from pulljobs.models.jobs import Job, Lease
from pulljobs.models.keys import BoundedKey, ExclusiveKey, FlowKey
from pulljobs.models.messages import Message, Publication, ScheduledMessage
from pulljobs.models.operations import HttpClient, JobProgress, Node, PullWaiter

__all__ = [
    "ArchivedJob",
    "Attempt",
    "AuditEntry",
    "AuditedBatch",
    "BatchSum",
    "BoundedKey",
    "Channel",
    "Consumer",
    "CountProgress",
    "Dashboard",
    "ExclusiveKey",
    "FlowBucket",
    "FlowKey",
    "HttpClient",
    "Job",
    "JobProgress",
    "Lease",
    "LimitGroup",
    "Message",
    "Node",
    "Producer",
    "Publication",
    "PullWaiter",
    "ScheduledMessage",
    "SettlementCount",
]
