"""Models. Only `pulljobs.storage` writes rows of jobs, leases, messages and the archive."""

from pulljobs.models.audit import AuditedBatch, AuditEntry
from pulljobs.models.bulk import BulkPublish, PublishedPart, RejectedRow, ReplayedJob
from pulljobs.models.dashboard import Dashboard
from pulljobs.models.jobs import ArchivedJob, Attempt, BoundedKey, ExclusiveKey, Job, Lease
from pulljobs.models.lake import LakeDay, LakeRun
from pulljobs.models.messages import Message, Publication, ScheduledMessage
from pulljobs.models.operations import Node, PullWaiter
from pulljobs.models.registry import Channel, Consumer, Producer
from pulljobs.models.rollups import ErrorFingerprint, HotKey, NodeCost, Rollup, RollupRun
from pulljobs.models.streams import Stream, StreamBatch

__all__ = [
    "ArchivedJob",
    "Attempt",
    "AuditEntry",
    "AuditedBatch",
    "BoundedKey",
    "BulkPublish",
    "Channel",
    "Consumer",
    "Dashboard",
    "ErrorFingerprint",
    "ExclusiveKey",
    "HotKey",
    "Job",
    "LakeDay",
    "LakeRun",
    "Lease",
    "Message",
    "Node",
    "NodeCost",
    "Producer",
    "Publication",
    "PublishedPart",
    "PullWaiter",
    "RejectedRow",
    "ReplayedJob",
    "Rollup",
    "RollupRun",
    "ScheduledMessage",
    "Stream",
    "StreamBatch",
]
