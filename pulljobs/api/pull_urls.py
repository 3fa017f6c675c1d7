"""The routes of part B: pulling with leases."""

from typing import Final

from django.urls import path

from pulljobs.api.views.ack import AckView
from pulljobs.api.views.pull import PullView
from pulljobs.api.views.renew import RenewView

CONSUMER: Final = "channel/<str:channel>/consumer/<str:consumer>"

urlpatterns = [
    path(f"{CONSUMER}/pull", PullView.as_view(), name="pull"),
    path(f"{CONSUMER}/ack", AckView.as_view(), name="ack"),
    path(f"{CONSUMER}/renew", RenewView.as_view(), name="renew"),
]
