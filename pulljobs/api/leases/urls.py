"""Routes of the lease protocol, which are added to those of the broker protocol."""

from django.urls import path

from pulljobs.api.broker.urls import CHANNEL, CONSUMER
from pulljobs.api.leases.ack import AckView
from pulljobs.api.leases.broadcast_batch import BroadcastBatch
from pulljobs.api.leases.consumer import InfoView, PauseView
from pulljobs.api.leases.pull import PullView
from pulljobs.api.leases.renew import RenewView
from pulljobs.api.leases.service import LiveView, LookupView, ReadyView

urlpatterns = [
    path(f"{CONSUMER}/pull", PullView.as_view(), name="pull"),
    path(f"{CONSUMER}/ack", AckView.as_view(), name="ack"),
    path(f"{CONSUMER}/renew", RenewView.as_view(), name="renew"),
    path(f"{CONSUMER}/info", InfoView.as_view(), name="info"),
    path(f"{CONSUMER}/pause", PauseView.as_view(), name="pause"),
    path(f"{CHANNEL}/broadcast-batch", BroadcastBatch.as_view(), name="broadcast-batch"),
    path("lookup", LookupView.as_view(), name="lookup"),
    path("livez", LiveView.as_view(), name="livez"),
    path("readyz", ReadyView.as_view(), name="readyz"),
]
