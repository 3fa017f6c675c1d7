"""Settings of the whole example project with its admin, for a database of the benchmarks."""

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES

DEBUG = False
ALLOWED_HOSTS = ["testserver"]
DATABASES["default"]["TEST"] = {"NAME": "pulljobs_pages"}
