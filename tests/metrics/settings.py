"""Settings of web servers that count and serve the metrics to every client."""

from tests.api.leases.settings import *  # noqa: F403
from tests.api.leases.settings import PULLJOBS

PULLJOBS = {**PULLJOBS, "METRICS": True, "API_ACCESS": "read-only"}
