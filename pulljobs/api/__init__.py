"""HTTP API: the broker protocol, and the lease protocol for pulls.

A project includes it in its routes with `include("pulljobs.api.urls")`.
"""

from pathlib import Path
from typing import Final

DOCUMENT: Final = Path(__file__).with_name("openapi.json")
"""File with the API as OpenAPI 3.1, written by docs/openapi.py."""
