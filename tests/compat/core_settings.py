"""Settings of the example project without the lake, schedules and workflows."""

from example_project.settings import *  # noqa: F403
from example_project.settings import INSTALLED_APPS, PULLJOBS

SLICES = ("pulljobs.lake", "pulljobs.schedules", "pulljobs.workflows")
INSTALLED_APPS = [app for app in INSTALLED_APPS if app not in SLICES]
PULLJOBS = {name: value for name, value in PULLJOBS.items() if name != "LAKE"}
