"""Settings of the processes that a director starts, for the server of the director."""

import os
from datetime import timedelta

from benchmarks.settings import *  # noqa: F403
from benchmarks.settings import INSTALLED_APPS as BENCHMARK_APPS

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": "faults",
        "USER": "faults",
        "HOST": os.environ.get("FAULTS_HOST", ""),
    }
}
INSTALLED_APPS = [app for app in BENCHMARK_APPS if app != "benchmarks.noop"] + ["benchmarks.faults"]
PULLJOBS = {
    "PUSH_ALLOWED_NETWORKS": ["127.0.0.0/8"],
    "REAP_INTERVAL": timedelta(seconds=0.5),
    "HEARTBEAT_INTERVAL": timedelta(seconds=float(os.environ.get("FAULTS_HEARTBEAT", "1"))),
    "LIVENESS_TIMEOUT": timedelta(seconds=float(os.environ.get("FAULTS_LIVENESS", "60"))),
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "%(asctime)s %(process)d %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "loggers": {"pulljobs": {"handlers": ["console"], "level": "INFO"}},
}
