"""Settings of the process that serves the HTTP clients of a run."""

from benchmarks.faults.settings import *  # noqa: F403
from benchmarks.faults.settings import INSTALLED_APPS, PULLJOBS

INSTALLED_APPS = [*INSTALLED_APPS, "rest_framework"]
MIDDLEWARE = []
ROOT_URLCONF = "pulljobs.api.urls"
ALLOWED_HOSTS = ["127.0.0.1"]
PULLJOBS = {**PULLJOBS, "TOKENS_REQUIRED": False}
