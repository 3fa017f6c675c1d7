"""Settings of pulljobs with workflows."""

from django_settings import *  # noqa: F403
from django_settings import INSTALLED_APPS as QUEUE_APPS

INSTALLED_APPS = [
    *(app for app in QUEUE_APPS if app != "pulljobs_app"),
    "pulljobs.workflows",
    "workflows_app",
]
