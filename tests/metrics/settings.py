"""Of web servers that count, and tell anybody."""

from tests.api.leases.settings import *  # noqa: F403
from tests.api.leases.settings import PULLJOBS

PULLJOBS = {**PULLJOBS, "METRICS": True, "API_ACCESS": "read-only"}
