"""URL patterns of the routes of runs."""

from django.urls import path, re_path

from pulljobs.api.base_views import UnknownPath
from pulljobs.workflows.api import run_views

urlpatterns = [
    path("runs", run_views.MessageRuns.as_view(), name="runs"),
    path("run/<str:run>", run_views.RunPage.as_view(), name="run"),
    path("run/<str:run>/signal/<path:signal>", run_views.SendSignal.as_view(), name="run-signal"),
    path("signal", run_views.SendSignalByToken.as_view(), name="signal"),
    re_path(r"^(runs?|signal)(/|$)", UnknownPath.as_view()),
]
