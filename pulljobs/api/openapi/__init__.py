"""The OpenAPI document: bodies, then operations, put together by drf-spectacular.

    python docs/openapi.py    writes pulljobs/api/openapi.json, which is served as it stands

The views build their JSON themselves, so that a page of jobs costs no serializers, and some of them
are plain asynchronous views that DRF knows nothing of. What they take and answer is told here; that
they do as told is shown by schemathesis (tests/access).
"""
