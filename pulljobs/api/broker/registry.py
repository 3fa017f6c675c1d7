"""What the endpoints of producers, channels and consumers share: lists, and rows that are PUT."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from django.db.models import QuerySet
from django.http import QueryDict
from rest_framework.request import Request
from rest_framework.response import Response

from pulljobs import registering
from pulljobs.api import exceptions, forms, raw_bodies, times
from pulljobs.api.base_views import UserView
from pulljobs.api.broker import cursors
from pulljobs.api.broker.cursors import Mark
from pulljobs.api.permissions import Needs, may
from pulljobs.errors import InvalidRegistration
from pulljobs.models.registry import TokenHolder
from pulljobs.storage.pages import newest_first

UNMODIFIED_SINCE: Final = "If-Unmodified-Since"
LAST_MODIFIED: Final = "Last-Modified"


def needs(kind: str) -> Needs:
    """To PUT is to add or to change, and its answer shows the token."""
    view, add, change, delete = (
        f"pulljobs.{verb}_{kind}" for verb in ("view", "add", "change", "delete")
    )
    return {"GET": [view], "PUT": [add, change], "DELETE": [delete]}


def listed(request: Request, rows: QuerySet[Any], link: Callable[[Any], str]) -> Response:
    """A page of links, the newest first."""
    page = newest_first(rows, cursors.cut(request))
    pages = cursors.pages(request, [Mark(row.pk, row.created_at) for row in page])
    return Response({"Result": [link(row) for row in page], "Pages": pages, "Links": None})


def check_precondition(request: Request, party: TokenHolder) -> None:
    """Whether the caller has seen the row as it is: the text it was given, letter by letter."""
    given = request.headers.get(UNMODIFIED_SINCE)
    if not given:
        raise exceptions.precondition_missing()
    if given != times.http_date(party.changed_at):
        raise exceptions.precondition_failed()


class PartyView(UserView):
    """GET and PUT of one row."""

    model: type[Any]

    def find(self, names: Mapping[str, str]) -> Any:
        """The row; 404 if there is none."""
        raise NotImplementedError

    def key(self, names: Mapping[str, str]) -> dict[str, Any]:
        """What finds the row, or makes it."""
        raise NotImplementedError

    def fields(self, form: QueryDict) -> dict[str, Any]:
        """What a PUT sets beside name and token."""
        return {}

    def show(self, request: Request, party: Any, token: str | None) -> dict[str, Any]:
        raise NotImplementedError

    def get(self, request: Request, **names: str) -> Response:
        party = self.find(names)
        may_see = may(request, *self.needs["PUT"])
        return self._answer(request, party, party.shown_token() if may_see else None)

    def put(self, request: Request, **names: str) -> Response:
        """Make it, or change it where it is as the caller has seen it."""
        form, key = raw_bodies.form(request), self.key(names)
        fields: dict[str, Any] = {}

        def decide(existing: TokenHolder | None) -> dict[str, Any]:
            if existing is not None:
                check_precondition(request, existing)
            fields.update(self.fields(form), **forms.party(form, key["name"]))
            return fields

        try:
            party, _change = registering.put(self.model, key, decide)
        except InvalidRegistration as error:
            raise exceptions.refused(400, error) from error
        return self._answer(request, party, fields["token"])

    def _answer(self, request: Request, party: Any, token: str | None) -> Response:
        changed = {LAST_MODIFIED: times.http_date(party.changed_at)}
        return Response(self.show(request, party, token), headers=changed)
