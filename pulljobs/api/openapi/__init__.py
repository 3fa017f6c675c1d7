"""OpenAPI document: operations and the declared bodies, combined by drf-spectacular.

    python docs/openapi.py    writes pulljobs/api/openapi.json, which the API serves

The views build their answers as declared dictionaries, and some of them are plain asynchronous
views that DRF does not know. The operations here name the bodies, and schemathesis (tests/access)
shows that the views keep to them. Only `view` is imported by the running API.
"""

from typing import Final

BROKER: Final = "broker protocol"
LEASES: Final = "lease protocol"
