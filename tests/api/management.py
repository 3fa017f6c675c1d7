"""A user of Django that manages the broker over HTTP."""

import json
from typing import Any

from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils.http import urlencode
from rest_framework.authtoken.models import Token

FORM = "application/x-www-form-urlencoded"
ALL = ("view", "add", "change", "delete")


def user(name: str, *verbs: str, models: tuple[str, ...] = ()) -> User:
    """Make a user with the permissions of these verbs, on all models of pulljobs or on some."""
    made = User.objects.create(username=name)
    Token.objects.create(user=made, key=name)
    permissions = Permission.objects.filter(content_type__app_label="pulljobs")
    given = []
    for permission in permissions:
        verb, _, model = permission.codename.partition("_")
        if verb in verbs and (not models or model in models):
            given.append(permission)
    made.user_permissions.set(given)
    return made


class Manager:
    """HTTP client of a user, whose name is also the API token. Without a name it is anonymous."""

    def __init__(self, name: str | None = None) -> None:
        self.client = Client(raise_request_exception=True)
        self.headers = {"Authorization": f"Token {name}"} if name else {}

    def get(self, url: str, **query: Any) -> Any:
        url = f"{url}?{urlencode(query, doseq=True)}" if query else url
        return self.client.get(url, headers=self.headers)

    def put(self, url: str, seen: Any = None, *, content_type: str = FORM, **fields: Any) -> Any:
        """PUT a form. If-Unmodified-Since is `seen`, or the Last-Modified of the answer `seen`."""
        return self._send("PUT", url, seen, urlencode(fields), content_type)

    def put_json(self, url: str, given: Any, seen: Any = None) -> Any:
        return self._send("PUT", url, seen, json.dumps(given), "application/json")

    def delete(self, url: str, seen: Any = None) -> Any:
        return self._send("DELETE", url, seen, "", "")

    def _send(self, method: str, url: str, seen: Any, body: str, content_type: str) -> Any:
        headers = dict(self.headers)
        if seen is not None:
            last_modified = seen if isinstance(seen, str) else seen["Last-Modified"]
            headers["If-Unmodified-Since"] = last_modified
        # The client leaves it out where there is no body.
        extra: dict[str, Any] = {"CONTENT_TYPE": content_type}
        return self.client.generic(method, url, body, headers=headers, **extra)
