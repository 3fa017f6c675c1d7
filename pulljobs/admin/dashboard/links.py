"""URLs of admin pages, for links on the dashboard."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.contrib.admin import AdminSite
from django.db.models import Model
from django.http import HttpRequest
from django.urls import reverse

from pulljobs.models import Consumer, Job, Node


class Links:
    """URLs of the pages that the admin site of a request has and its user may see.

    For all other pages the methods return None.
    """

    def __init__(self, site: AdminSite, request: HttpRequest) -> None:
        self._site, self._request = site, request
        self._shown: dict[type[Model], bool] = {}

    def job(self, job_id: int) -> str | None:
        """Return the URL of the page of a job, or None if the user can't open it."""
        return self.page(Job, "change", job_id)

    def jobs(self, **query: Any) -> str | None:
        """Return the URL of the job list with these filters, or None if the user can't open it."""
        return self.page(Job, "changelist", query=query)

    def consumer(self, consumer_id: int) -> str | None:
        """Return the URL of the page of a consumer, or None if the user can't open it."""
        return self.page(Consumer, "change", consumer_id)

    def node(self, node_id: Any) -> str | None:
        """Return the URL of the page of a node, or None if the user can't open it."""
        return self.page(Node, "change", node_id)

    def page(
        self, model: type[Model], kind: str, *ids: Any, query: Mapping[str, Any] | None = None
    ) -> str | None:
        """Return the URL of a page of a model, or None if the user can't open it.

        `kind` is for example "changelist".
        """
        if not self._is_shown(model):
            return None
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}_{kind}"
        address = reverse(name, args=ids, current_app=self._site.name)
        return f"{address}?{urlencode(query)}" if query else address

    def _is_shown(self, model: type[Model]) -> bool:
        if model not in self._shown:
            permission = f"{model._meta.app_label}.view_{model._meta.model_name}"
            self._shown[model] = self._site.is_registered(model) and self._request.user.has_perm(
                permission
            )
        return self._shown[model]
