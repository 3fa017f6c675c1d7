"""Base of the admins of the tables of pulljobs."""

from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from pulljobs.admin.links import Links
from pulljobs.conf import settings


class BaseAdmin(admin.ModelAdmin):  # type: ignore[type-arg]  # generic for mypy only
    """Base of the admins of rows in the jobs' database."""

    class Media:
        css: ClassVar = {"all": ["pulljobs/admin.css"]}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).using(settings().DATABASE)

    def get_object(
        self, request: HttpRequest, object_id: str, from_field: str | None = None
    ) -> Any:
        """Return the row of a page. Its attribute `links` is for read-only fields with links."""
        row: Any = super().get_object(request, object_id, from_field)
        if row is not None:
            row.links = Links(request)
        return row
