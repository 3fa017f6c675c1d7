"""Write the OpenAPI document that the API serves: `python docs/openapi.py`."""

import json
import os

import django

from pulljobs.api import DOCUMENT


def render_document() -> str:
    from pulljobs.api.openapi.document import document

    return json.dumps(document(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    django.setup()
    DOCUMENT.write_text(render_document(), "utf-8")
