"""The broker protocol and pulling over HTTP. Mount it with `include("pulljobs.api.urls")`."""

from pathlib import Path
from typing import Final

DOCUMENT: Final = Path(__file__).with_name("openapi.json")
"""The API in OpenAPI 3.1, written by docs/openapi.py."""
