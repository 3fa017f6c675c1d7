"""Settings without pulljobs, to measure the start time and memory of Django alone."""

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import INSTALLED_APPS

INSTALLED_APPS = [app for app in INSTALLED_APPS if app.startswith("django.")]
