"""The example project as it is, admin and all, over a database of the benchmarks."""

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES

DEBUG = False
ALLOWED_HOSTS = ["testserver"]
DATABASES["default"]["TEST"] = {"NAME": "pulljobs_pages"}
