"""Write the OpenAPI document that is served and checked in: `python docs/openapi.py`."""

import json

import django

from pulljobs.api import DOCUMENT


def text() -> str:
    from pulljobs.api.schema.document import document

    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    django.setup()
    DOCUMENT.write_text(text(), "utf-8")
