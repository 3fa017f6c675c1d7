"""No trailing slashes; channels and consumers by name, jobs by their public id."""

from django.urls import path, re_path

from pulljobs.api import exceptions
from pulljobs.api.broker import status
from pulljobs.api.broker.broadcast import Broadcast
from pulljobs.api.broker.dead_letters import DeadLetters
from pulljobs.api.broker.jobs import JobView, RequeueDeadJob
from pulljobs.api.broker.messages import Messages, MessagesStatus, MessageView
from pulljobs.api.broker.queued_jobs import QueuedJobs
from pulljobs.api.gateway import guarded
from pulljobs.api.leases import urls
from pulljobs.api.views.channels import Channels, ChannelView
from pulljobs.api.views.consumers import Consumers, ConsumerView
from pulljobs.api.views.metrics import Metrics
from pulljobs.api.views.openapi import OpenApi
from pulljobs.api.views.producers import Producers, ProducerView
from pulljobs.api.views.scheduled import ScheduledMessages, ScheduledMessageView
from pulljobs.api.views.unknown import UnknownPath

CHANNEL = "channel/<str:channel>"
CONSUMER = f"{CHANNEL}/consumer/<str:consumer>"

# Ids of messages are the producers' own, and may have slashes.
BROKER = [
    path("producers", Producers.as_view(), name="producers"),
    path("producer/<str:producer>", ProducerView.as_view(), name="producer"),
    path("channels", Channels.as_view(), name="channels"),
    path(CHANNEL, ChannelView.as_view(), name="channel"),
    path(f"{CHANNEL}/consumers", Consumers.as_view(), name="consumers"),
    path(CONSUMER, ConsumerView.as_view(), name="consumer"),
    path(f"{CHANNEL}/broadcast", Broadcast.as_view(), name="broadcast"),
    path(f"{CHANNEL}/messages", Messages.as_view(), name="messages"),
    path(f"{CHANNEL}/messages-status", MessagesStatus.as_view(), name="messages-status"),
    path(f"{CHANNEL}/message/<path:message>", MessageView.as_view(), name="message"),
    path(f"{CHANNEL}/scheduled-messages", ScheduledMessages.as_view(), name="scheduled-messages"),
    path(
        f"{CHANNEL}/scheduled-message/<path:message>",
        ScheduledMessageView.as_view(),
        name="scheduled-message",
    ),
    path(f"{CONSUMER}/queued-jobs", QueuedJobs.as_view(), name="queued-jobs"),
    path(f"{CONSUMER}/job/<str:job>", JobView.as_view(), name="job"),
    path(
        f"{CONSUMER}/job/<str:job>/requeue-dead-job",
        RequeueDeadJob.as_view(),
        name="requeue-dead-job",
    ),
    path(f"{CONSUMER}/dlq", DeadLetters.as_view(), name="dlq"),
    path("_status", status.AppStatus.as_view(), name="app-status"),
    path("job-status", status.JobStatus.as_view(), name="job-status"),
    path("dlq-status", status.DeadLetterStatus.as_view(), name="dlq-status"),
    path("metrics", Metrics.as_view(), name="metrics"),
    path("openapi.json", OpenApi.as_view(), name="openapi"),
]

# Elsewhere a project may have pages of its own.
UNKNOWN = re_path(r"^(channel|producer|channels|producers)(/|$)", UnknownPath.as_view())

app_name = "pulljobs"
urlpatterns = [
    *(guarded(one) for one in BROKER),
    *(guarded(one, exceptions.as_problem) for one in urls.urlpatterns),
    UNKNOWN,
]
