"""Settings of servers that tests start as processes: the example project on the test's database."""

import os

from example_project.settings import *  # noqa: F403
from example_project.settings import DATABASES

DATABASES["default"]["NAME"] = os.environ["SERVED_DATABASE"]
