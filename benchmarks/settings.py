"""Settings of the example project without its apps, for a database of the benchmarks."""

import json
import os

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES

NAME = "pulljobs_benchmark"

INSTALLED_APPS = [
    "django.contrib.contenttypes",
    "django.contrib.auth",
    "django.contrib.postgres",
    "pulljobs",
    "pulljobs.lake",
    "benchmarks.noop",
]
ROOT_URLCONF = "benchmarks.noop"
DEBUG = False
PULLJOBS = json.loads(os.environ.get("PULLJOBS_BENCHMARK_SETTINGS", "{}"))
DATABASES["default"]["TEST"] = {"NAME": NAME}
if os.environ.get("PULLJOBS_BENCHMARK"):
    # A benchmark started this process and has created the database.
    DATABASES["default"]["NAME"] = NAME
