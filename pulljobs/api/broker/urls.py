"""Routes of the broker protocol. They have no trailing slashes, and address rows by their names."""

from typing import Final

from django.urls import path

from pulljobs.api.broker import limit_groups, messages, registry, status
from pulljobs.api.broker.broadcast import Broadcast
from pulljobs.api.broker.dead_letters import DeadLetters
from pulljobs.api.broker.jobs import RequeueDeadJob, SingleJobView
from pulljobs.api.broker.key_weights import KeyWeights
from pulljobs.api.broker.queued_jobs import QueuedJobs

CHANNEL: Final = "channel/<str:channel>"
CONSUMER: Final = f"{CHANNEL}/consumer/<str:consumer>"
JOB: Final = f"{CONSUMER}/job/<str:job>"
"""Jobs by their public id."""

# Message ids are the producers' own and may have slashes.
urlpatterns = [
    path("producers", registry.Producers.as_view(), name="producers"),
    path("producer/<str:producer>", registry.ProducerView.as_view(), name="producer"),
    path("channels", registry.Channels.as_view(), name="channels"),
    path("limit-groups", limit_groups.LimitGroups.as_view(), name="limit-groups"),
    path("limit-group/<str:group>", limit_groups.LimitGroupView.as_view(), name="limit-group"),
    path(CHANNEL, registry.ChannelView.as_view(), name="channel"),
    path(f"{CHANNEL}/consumers", registry.Consumers.as_view(), name="consumers"),
    path(CONSUMER, registry.ConsumerView.as_view(), name="consumer"),
    path(f"{CHANNEL}/broadcast", Broadcast.as_view(), name="broadcast"),
    path(f"{CHANNEL}/messages", messages.Messages.as_view(), name="messages"),
    path(f"{CHANNEL}/messages-status", messages.MessagesStatus.as_view(), name="messages-status"),
    path(f"{CHANNEL}/message/<path:message>", messages.MessageView.as_view(), name="message"),
    path(
        f"{CHANNEL}/scheduled-messages",
        messages.ScheduledMessages.as_view(),
        name="scheduled-messages",
    ),
    path(
        f"{CHANNEL}/scheduled-message/<path:message>",
        messages.ScheduledMessageView.as_view(),
        name="scheduled-message",
    ),
    path(f"{CONSUMER}/queued-jobs", QueuedJobs.as_view(), name="queued-jobs"),
    path(JOB, SingleJobView.as_view(), name="job"),
    path(f"{JOB}/requeue-dead-job", RequeueDeadJob.as_view(), name="requeue-dead-job"),
    path(f"{CONSUMER}/weights", KeyWeights.as_view(), name="weights"),
    path(f"{CONSUMER}/dlq", DeadLetters.as_view(), name="dlq"),
    path("_status", status.AppStatus.as_view(), name="app-status"),
    path("job-status", status.JobStatus.as_view(), name="job-status"),
    path("dlq-status", status.DeadLetterStatus.as_view(), name="dlq-status"),
    path("metrics", status.Metrics.as_view(), name="metrics"),
]
