"""No trailing slashes; channels and consumers by name, jobs by their public id."""

from django.urls import path

from pulljobs.api.views.job import JobTransition
from pulljobs.api.views.queued_jobs import QueuedJobs

CONSUMER = "channel/<str:channel>/consumer/<str:consumer>"

app_name = "pulljobs"
urlpatterns = [
    path(f"{CONSUMER}/queued-jobs", QueuedJobs.as_view(), name="queued-jobs"),
    path(f"{CONSUMER}/job/<str:job>", JobTransition.as_view(), name="job"),
]
