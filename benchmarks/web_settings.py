"""Settings of processes that serve the API and nothing else."""

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import INSTALLED_APPS

INSTALLED_APPS = [*INSTALLED_APPS, "rest_framework"]
MIDDLEWARE = []
ROOT_URLCONF = "pulljobs.api.urls"
ASGI_APPLICATION = "benchmarks.web_asgi.application"
ALLOWED_HOSTS = ["127.0.0.1"]
