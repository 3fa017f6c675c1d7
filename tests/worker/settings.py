"""Settings of the worker processes that tests start: the database and the apps of the test."""

import json
import os
from datetime import timedelta

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES
from example_project.settings import PULLJOBS as EXAMPLE

DATABASES["default"]["NAME"] = os.environ.get("WORKER_DATABASE", "")
DATABASES["default"]["CONN_MAX_AGE"] = int(os.environ.get("WORKER_CONN_MAX_AGE", "0"))
INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.postgres",
    "pulljobs",
    *os.environ.get("WORKER_APPS", "tests.worker.app").split(),
]
ROOT_URLCONF = ""
PULLJOBS = {"DATABASE": EXAMPLE["DATABASE"]} | json.loads(os.environ.get("WORKER_PULLJOBS", "{}"))
if "WORKER_MAX_LEASE" in os.environ:
    PULLJOBS["MAX_LEASE"] = timedelta(seconds=float(os.environ["WORKER_MAX_LEASE"]))
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"pulljobs": {"handlers": ["console"], "level": "INFO"}},
}
