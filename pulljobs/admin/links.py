"""Links to pages of the admin, none to a page that its site lacks or its user may not see."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.db.models import Model
from django.http import HttpRequest
from django.urls import NoReverseMatch
from django.utils.html import format_html
from django.utils.safestring import SafeString

from pulljobs.admin import formats
from pulljobs.models import Consumer, Job, Node


class Links:
    """URLs of the pages that the admin site of a request has and its user may see.

    For all other pages the methods return None, but `address` does not check what the user may see.
    """

    def __init__(self, request: HttpRequest) -> None:
        self._request, self._site = request, formats.site_of(request)
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

    def row(self, row: Model) -> str | None:
        """Return the URL of the page of a row, or None if the user can't open it."""
        return self.page(type(row), "change", row.pk)

    def record(self, record: tuple[str, int] | None) -> str | None:
        """Return the URL of a row, given the name of its model in `pulljobs` and its primary key.

        It is None for None, and if the user can't open the page.
        """
        if record is None:
            return None
        return self.page(apps.get_model("pulljobs", record[0]), "change", record[1])

    def page(
        self, model: type[Model], kind: str, *ids: Any, query: Mapping[str, Any] | None = None
    ) -> str | None:
        """Return the URL of a page of a model, or None if the user can't open it.

        `kind` is for example "changelist".
        """
        if not self._is_shown(model):
            return None
        address = self.address(f"{model._meta.app_label}_{model._meta.model_name}_{kind}", *ids)
        return f"{address}?{urlencode(query)}" if address and query else address

    def address(self, page: str, *ids: Any) -> str | None:
        """Return the URL of a page, such as "pulljobs_job_payload", or None if the site lacks it.

        Permissions of the user are not checked.
        """
        try:
            return formats.address(self._site, page, *ids)
        except NoReverseMatch:
            return None

    def _is_shown(self, model: type[Model]) -> bool:
        if model not in self._shown:
            label, name, user = model._meta.app_label, model._meta.model_name, self._request.user
            self._shown[model] = any(
                user.has_perm(f"{label}.{verb}_{name}") for verb in ("view", "change")
            )
        return self._shown[model]


def linked(url: str | None, text: Any) -> SafeString | str:
    """Return a text as a link to a URL, or the text alone if there is no URL."""
    return format_html('<a href="{}">{}</a>', url, text) if url else str(text)


def consumer_link(links: Links, consumer: Consumer) -> SafeString | str:
    """Return the names of a channel and its consumer, as a link if the user may see its page."""
    return linked(links.consumer(consumer.pk), f"{consumer.channel} / {consumer}")
