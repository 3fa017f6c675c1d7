"""The routes of part B: pulling with leases."""

from typing import Final

from django.urls import path

from pulljobs.api.leases.ack import AckView
from pulljobs.api.leases.broadcast_batch import BroadcastBatch
from pulljobs.api.leases.health import Live, Ready
from pulljobs.api.leases.info import Info
from pulljobs.api.leases.pull import PullView
from pulljobs.api.leases.renew import RenewView
from pulljobs.api.views.lookup import Lookup
from pulljobs.api.views.pause import Pause

CHANNEL: Final = "channel/<str:channel>"
CONSUMER: Final = f"{CHANNEL}/consumer/<str:consumer>"

urlpatterns = [
    path(f"{CONSUMER}/pull", PullView.as_view(), name="pull"),
    path(f"{CONSUMER}/ack", AckView.as_view(), name="ack"),
    path(f"{CONSUMER}/renew", RenewView.as_view(), name="renew"),
    path(f"{CONSUMER}/info", Info.as_view(), name="info"),
    path(f"{CONSUMER}/pause", Pause.as_view(), name="pause"),
    path(f"{CHANNEL}/broadcast-batch", BroadcastBatch.as_view(), name="broadcast-batch"),
    path("lookup", Lookup.as_view(), name="lookup"),
    path("livez", Live.as_view(), name="livez"),
    path("readyz", Ready.as_view(), name="readyz"),
]
