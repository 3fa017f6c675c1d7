"""Settings of the example project without the lake."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS, PULLJOBS

INSTALLED_APPS = [app for app in INSTALLED_APPS if app != "pulljobs.lake"]
PULLJOBS = {name: value for name, value in PULLJOBS.items() if name != "LAKE"}
