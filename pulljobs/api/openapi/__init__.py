"""Generator of the OpenAPI document, from the operations here and the declared bodies of the API.

    python docs/openapi.py    writes pulljobs/api/openapi.json, which the API serves

Its library, drf-spectacular, can't read the bodies from the views: they answer with dictionaries,
and some are no views of DRF. So the operations name the bodies, and schemathesis (tests/access)
shows that the views keep to them. The running API imports only `view`.
"""

from typing import Final

BROKER: Final = "broker protocol"
LEASES: Final = "lease protocol"
