"""Of web servers that count, and tell anybody."""

from tests.api.pull.settings import *  # noqa: F403
from tests.api.pull.settings import PULLJOBS

PULLJOBS = {**PULLJOBS, "METRICS": True, "API_ACCESS": "read-only"}
