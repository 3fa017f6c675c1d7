"""The tables. Rows of jobs, leases, messages and archive are written by `pulljobs.storage` only."""

from pulljobs.models.jobs import ArchivedJob, BoundedKey, ExclusiveKey, Job, Lease
from pulljobs.models.messages import Message, Publication, ScheduledMessage
from pulljobs.models.operations import Node, PullWaiter
from pulljobs.models.registry import Channel, Consumer, Producer
from pulljobs.models.rollups import ErrorFingerprint, HotKey, NodeCost, Rollup, RollupRun

__all__ = [
    "ArchivedJob",
    "BoundedKey",
    "Channel",
    "Consumer",
    "ErrorFingerprint",
    "ExclusiveKey",
    "HotKey",
    "Job",
    "Lease",
    "Message",
    "Node",
    "NodeCost",
    "Producer",
    "Publication",
    "PullWaiter",
    "Rollup",
    "RollupRun",
    "ScheduledMessage",
]
