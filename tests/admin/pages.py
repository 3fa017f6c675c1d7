"""Forms and texts of the admin's pages, for tests."""

import html
import re
from typing import Any

from django.test import Client
from django.urls import reverse

from pulljobs.models import AuditEntry

LISTS = ("job", "archivedjob", "channel", "producer", "consumer")


def listing(model: str) -> str:
    return reverse(f"admin:pulljobs_{model}_changelist")


def page(model: str, pk: Any) -> str:
    return reverse(f"admin:pulljobs_{model}_change", args=[pk])


def read_page(client: Client, url: str, **query: Any) -> str:
    answer = client.get(url, query, follow=True)
    assert answer.status_code == 200, answer.status_code
    return answer.content.decode()


def post_form(client: Client, url: str, data: dict[str, Any]) -> list[str]:
    """Post a form. Return the messages of the page to which the answer leads."""
    answer = client.post(url, data, follow=True)
    assert answer.status_code == 200, answer.status_code
    return [str(message) for message in answer.context["messages"]]


def secrets(client: Client, url: str, data: dict[str, Any]) -> list[str]:
    """Post a form. Return the secrets in the answer. Check that no cookie or session has them."""
    answer = client.post(url, data)
    text = answer.content.decode()
    shown = [html.unescape(secret) for secret in re.findall(r'pulljobs-token">([^<]+)<', text)]
    kept = f"{client.cookies} {dict(client.session)}"
    assert not any(secret in kept for secret in shown)
    assert not shown or "no-store" in answer["Cache-Control"]
    return shown


def act(client: Client, action: str, rows: list[int], query: str = "") -> list[str]:
    """Apply an action of the list of jobs to the jobs with these ids. Return the messages."""
    data = {"action": action, "_selected_action": rows, "index": 0}
    return post_form(client, listing("job") + query, data)


def preview_token(client: Client, url: str) -> str:
    """Return the signed preview of an action from a page's form, for a POST to send back."""
    [signed] = re.findall(r'name="preview_token" value="([^"]+)"', read_page(client, url))
    return str(signed)


def trail() -> list[tuple[str, str, str]]:
    """Return user, act and subject of all audit entries, oldest first."""
    return list(AuditEntry.objects.order_by("pk").values_list("by", "act", "subject"))


def rows(text: str) -> list[str]:
    """Return the text of each row of a list."""
    body = text.split("<tbody>")[1].split("</tbody>")[0] if "result_list" in text else ""
    cells = [re.sub(r"<[^>]+>", " ", row) for row in body.split("<tr>")[1:]]
    return [" ".join(html.unescape(row).split()) for row in cells]


def offered(text: str) -> set[str]:
    """Return the names of the actions on jobs that a page offers, as a menu or as buttons."""
    return set(re.findall(r'<option value="(redrive|requeue|reschedule|kill|delete)"', text)) | set(
        re.findall(r'name="_event" value="(\w+)"', text)
    )
