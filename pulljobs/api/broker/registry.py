"""Routes with which users list, read and write producers, channels and consumers.

/producers, /producer/{p}, /channels, /channel/{c}, /channel/{c}/consumers and
/channel/{c}/consumer/{k}.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol

from django.db.models import QuerySet
from django.utils import http
from django.utils.crypto import get_random_string
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import registering
from pulljobs.api import exceptions
from pulljobs.api.authentication import find_row
from pulljobs.api.base_views import UserView, channel_of, consumer_of
from pulljobs.api.broker import resources
from pulljobs.api.broker.bodies import ConsumerFormBody, ListingBody, RegistryFormBody
from pulljobs.api.broker.forms import (
    key_fields,
    limit_fields,
    pick_form_fields,
    read_form_or_json,
)
from pulljobs.api.broker.links import (
    CursorRow,
    link_in_channel,
    link_in_consumer,
    link_pages,
    link_to,
    read_cut,
)
from pulljobs.api.permissions import Needs, is_permitted
from pulljobs.conf import settings
from pulljobs.errors import InvalidRegistration
from pulljobs.models import Channel, Consumer, Producer
from pulljobs.models.token_holders import TokenHolder
from pulljobs.storage.pages import newest_first

UNMODIFIED_SINCE: Final = "If-Unmodified-Since"
LAST_MODIFIED: Final = "Last-Modified"
RANDOM_TOKEN: Final = 12
"""Number of characters of a token for a row that is PUT without one."""


def registry_needs(kind: str) -> Needs:
    """Return the permissions that a user needs for each method, for a model's name in lower case.

    PUT may create or change a row, and so needs both permissions. Its answer has the token.
    """
    view, add, change, delete = (
        f"pulljobs.{verb}_{kind}" for verb in ("view", "add", "change", "delete")
    )
    return {"GET": [view], "PUT": [add, change], "DELETE": [delete]}


def list_rows(request: Request, rows: QuerySet[Any], link: Callable[[Any], str]) -> Response:
    """Return the answer with a page of links to rows, the newest row first."""
    page = newest_first(rows, read_cut(request))
    pages = link_pages(request, [CursorRow(row.pk, row.created_at) for row in page])
    body: ListingBody = {"Result": [link(row) for row in page], "Pages": pages, "Links": None}
    return Response(body)


class ChangedRow(Protocol):
    """Interface of rows with the time of their last change."""

    @property
    def changed_at(self) -> datetime: ...


def check_precondition(request: Request, row: ChangedRow) -> None:
    """Raise a refusal unless the caller has seen the newest version of the row.

    Its If-Unmodified-Since must be the row's Last-Modified, character by character.
    """
    given = request.headers.get(UNMODIFIED_SINCE)
    if not given:
        raise exceptions.precondition_missing()
    if given != render_http_date(row.changed_at):
        raise exceptions.precondition_failed()


def render_http_date(time: datetime) -> str:
    """Return a time in the format of HTTP headers, rounded down to the second."""
    return http.http_date(int(time.timestamp()))


class Producers(UserView):
    needs = registry_needs("producer")

    def get(self, request: Request) -> Response:
        rows = Producer.objects.using(settings().DATABASE)
        return list_rows(request, rows, lambda row: link_to(request, "producer", producer=row.name))


class Channels(UserView):
    needs = registry_needs("channel")

    def get(self, request: Request) -> Response:
        rows = Channel.objects.using(settings().DATABASE)
        return list_rows(request, rows, lambda row: link_in_channel(request, "channel", row))


class Consumers(UserView):
    needs = registry_needs("consumer")

    def get(self, request: Request, **names: str) -> Response:
        rows = Consumer.objects.using(settings().DATABASE).select_related("channel")
        return list_rows(
            request,
            rows.filter(channel=channel_of(names), deleted_at=None),
            lambda row: link_in_consumer(request, "consumer", row),
        )


class RegistryView(UserView):
    """Base of the views that read (GET) and create or change (PUT) one row of a model."""

    model: type[Any]
    render: Callable[[Request, Any, str | None], Any]

    def find(self, names: Mapping[str, str]) -> Any:
        """Return the row with the names in the URL. Raise a refusal (404) if there is none."""
        raise NotImplementedError

    def key(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields that identify the row, with the values in the URL."""
        return {"name": names[self.model._meta.model_name]}

    def fields(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Return the fields that a PUT of this form sets, in addition to title and token."""
        return {}

    def first_fields(self) -> dict[str, Any]:
        """Return the fields that a PUT sets only if it creates the row."""
        return {}

    def get(self, request: Request, **names: str) -> Response:
        row = self.find(names)
        may_see = is_permitted(request, *self.needs["PUT"])
        return self._answer(request, row, row.shown_token() if may_see else None)

    def put(self, request: Request, **names: str) -> Response:
        """Create the row, or change it if the caller has seen its newest version."""
        form, key = read_form_or_json(request, ConsumerFormBody), self.key(names)
        fields: dict[str, Any] = {}

        def decide(existing: TokenHolder | None) -> dict[str, Any]:
            if existing is None:
                fields.update(self.first_fields())
            else:
                check_precondition(request, existing)
            fields.update(self.fields(form), **_row_fields(form, key["name"]))
            return fields

        try:
            row, _change = registering.put(self.model, key, decide)
        except InvalidRegistration as error:
            raise exceptions.refused(400, error) from error
        return self._answer(request, row, fields["token"])

    def _answer(self, request: Request, row: Any, token: str | None) -> Response:
        changed = {LAST_MODIFIED: render_http_date(row.changed_at)}
        return Response(type(self).render(request, row, token), headers=changed)


class ProducerView(RegistryView):
    needs = registry_needs("producer")
    model = Producer
    render = staticmethod(resources.render_producer)

    def find(self, names: Mapping[str, str]) -> Producer:
        producer = find_row(Producer, names["producer"])
        if producer is None:
            raise exceptions.no_producer()
        return producer


class ChannelView(RegistryView):
    needs = registry_needs("channel")
    model = Channel
    render = staticmethod(resources.render_channel)

    def find(self, names: Mapping[str, str]) -> Channel:
        return channel_of(names)


class ConsumerView(RegistryView):
    needs = registry_needs("consumer")
    model = Consumer
    render = staticmethod(resources.render_consumer)

    def find(self, names: Mapping[str, str]) -> Consumer:
        return consumer_of(names)

    def key(self, names: Mapping[str, str]) -> dict[str, Any]:
        return {"channel": channel_of(names), "name": names["consumer"]}

    def first_fields(self) -> dict[str, Any]:
        """Return retry limit and strategy, as far as PULLJOBS['PROTOCOL_...'] sets them."""
        given = {
            "max_retries": settings().PROTOCOL_MAX_RETRIES,
            "retry_strategy": settings().PROTOCOL_RETRY_STRATEGY or None,
        }
        return {name: value for name, value in given.items() if value is not None}

    def fields(self, form: Mapping[str, str]) -> dict[str, Any]:
        """Return callback URL, type (by default "push"), limits and limit group in the form."""
        given = pick_form_fields(ConsumerFormBody, form)
        return {
            "callback_url": given["callbackUrl"],
            "type": given["type"] or Consumer.Type.PUSH.value,
            **limit_fields(form),
            **key_fields(form),
            **_group_field(form.get("limitGroup")),
        }

    def delete(self, request: Request, **names: str) -> Response:
        """Delete the consumer and its DEAD jobs, if the caller has seen its newest version.

        Refuse (409) while it has queued or running jobs.
        """

        def check(existing: Consumer | None) -> None:
            if existing is None:
                raise exceptions.no_consumer()
            check_precondition(request, existing)

        stats = registering.delete_consumer(channel_of(names), names["consumer"], check)
        if stats is not None:
            raise exceptions.has_jobs(resources.render_count(stats.live))
        return Response(status=204)


def _group_field(name: str | None) -> dict[str, Any]:
    return {} if name is None else {"limit_group": name or None}


def _row_fields(form: Mapping[str, str], id: str) -> dict[str, Any]:
    """Return the title and the token in a form, by default no title and a random token."""
    given = pick_form_fields(RegistryFormBody, form)
    return {
        "title": "" if given["name"] == id else given["name"],
        "token": given["token"] or get_random_string(RANDOM_TOKEN),
    }
