"""Managing and reading need a user with the permission, or a setting that says otherwise."""

from base64 import b64encode
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User
from django.core.checks import run_checks
from django.test import Client, modify_settings, override_settings
from rest_framework.authtoken.models import Token

from pulljobs import scheduling
from pulljobs.api.authentication import user_authenticators
from pulljobs.models import Channel, Consumer
from pulljobs.storage import nodes
from tests.api.caller import Subscription, subscription
from tests.factories import USING

FORM = "application/x-www-form-urlencoded"
SENT = {"PUT": (FORM, b"name=New"), "POST": ("application/json", b'{"Until": null}')}
"""Content type and body of a request, by its method."""
CHANNEL, CONSUMER = "/channel/orders", "/channel/orders/consumer/census"
READ = {
    "/channels": "view_channel",
    CHANNEL: "view_channel",
    "/producers": "view_producer",
    f"{CHANNEL}/consumers": "view_consumer",
    CONSUMER: "view_consumer",
    f"{CHANNEL}/messages": "view_message",
    f"{CHANNEL}/messages-status": "view_message",
    f"{CHANNEL}/scheduled-messages": "view_scheduledmessage",
    f"{CONSUMER}/dlq": "view_job",
    "/job-status": "view_job",
    "/dlq-status": "view_job",
    "/metrics": "view_job",
}
WRITTEN = [
    ("PUT", CHANNEL, ["add_channel", "change_channel"]),
    ("PUT", "/producer/shop", ["add_producer", "change_producer"]),
    ("PUT", CONSUMER, ["add_consumer", "change_consumer"]),
    ("DELETE", CONSUMER, ["delete_consumer"]),
    ("POST", f"{CONSUMER}/pause", ["change_consumer"]),
    ("DELETE", f"{CONSUMER}/queued-jobs", ["change_consumer", "delete_job"]),
]

pytestmark = pytest.mark.django_db
quick_passwords = override_settings(
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"]
)


@pytest.fixture
def orders() -> Subscription:
    return subscription("orders", "census")


def who_may(*permissions: str) -> User:
    user = get_user_model().objects.create_user("somebody")
    for name in permissions:
        user.user_permissions.add(
            Permission.objects.get(codename=name, content_type__app_label="pulljobs")
        )
    return user


def by_token(user: User) -> Client:
    return Client(headers={"Authorization": f"Token {Token.objects.create(user=user).key}"})


def write(client: Client, method: str, url: str, **headers: str) -> Any:
    type, body = SENT.get(method, (FORM, b""))
    return client.generic(method, url, body, type, headers=headers)


@pytest.mark.parametrize(("url", "permission"), READ.items())
def test_reading_needs_a_login_and_that_permission(
    url: str, permission: str, orders: Subscription
) -> None:
    stranger = Client().get(url)
    assert (stranger.status_code, stranger["WWW-Authenticate"]) == (401, 'Basic realm="api"')
    others = {other for other in READ.values() if other != permission}
    user = who_may(*others, "change_channel", "change_consumer")
    client = by_token(user)
    assert client.get(url).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename=permission))
    assert client.get(url).status_code == 200


@pytest.mark.parametrize(("method", "url", "permissions"), WRITTEN)
def test_managing_needs_a_login_and_those_permissions(
    method: str, url: str, permissions: list[str], orders: Subscription
) -> None:
    assert write(Client(), method, url).status_code == 401
    user = who_may(*set(READ.values()))
    client = by_token(user)
    assert write(client, method, url).status_code == 403
    for name in permissions[:-1]:
        user.user_permissions.add(Permission.objects.get(codename=name))
        assert write(client, method, url).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename=permissions[-1]))
    assert write(client, method, url).status_code not in (401, 403)


def test_tokens_are_shown_to_who_may_change_and_never_kept_by_a_cache(orders: Subscription) -> None:
    reader = by_token(who_may("view_channel")).get(CHANNEL)
    assert "Token" not in reader.json()
    root = get_user_model().objects.create_superuser("root")
    shown = by_token(root).get(CHANNEL)
    assert shown.json()["Token"] == orders.channel_token
    assert shown["Cache-Control"] == "no-store"


def test_a_scheduled_message_shows_its_content_to_who_may_see_messages(
    orders: Subscription,
) -> None:
    scheduling.schedule(
        Channel.objects.get(),
        b"s3cr3t",
        nodes.clock(USING) + timedelta(hours=1),
        message_id="later",
        headers={"card": "m4sked"},
    )
    url, user = f"{CHANNEL}/scheduled-message/later", who_may("view_scheduledmessage")
    client = by_token(user)
    shown = client.get(url).json()
    assert shown["messageId"] == "later"
    assert not {"payload", "payloadEncoding", "headers"} & shown.keys()
    user.user_permissions.add(Permission.objects.get(codename="view_message"))
    shown = client.get(url).json()
    assert (shown["payload"], shown["headers"]) == ("s3cr3t", {"card": "m4sked"})


def test_a_session_needs_the_csrf_token_to_write(orders: Subscription) -> None:
    """A session without the CSRF token may read, but every write is refused with 403."""
    client = Client(enforce_csrf_checks=True)
    client.force_login(get_user_model().objects.create_superuser("root"))
    assert client.get(CHANNEL).status_code == 200
    for method, url, _permissions in WRITTEN:
        assert write(client, method, url).status_code == 403
    client.get("/admin/")
    client.cookies["csrftoken"] = token = "a" * 32
    for type in ("application/json", FORM, "text/plain"):
        pause = b'{"Until": "2999-12-31T00:00:00Z"}'
        headers = {"X-CSRFToken": token}
        answer = client.generic("POST", f"{CONSUMER}/pause", pause, type, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"PauseUntil": "2999-12-31T00:00:00Z"})


@quick_passwords
@pytest.mark.parametrize("type", ["text/plain", FORM, "multipart/form-data; boundary=x", ""])
def test_a_page_of_another_site_can_t_pause_in_a_user_s_name(
    type: str, orders: Subscription
) -> None:
    """A request from another site with the content type of a form is refused with 415.

    Browsers send a Basic login along with such forms. They send JSON only if the server allows it.
    """
    client = Client(headers={"Authorization": f"Basic {b64encode(b'root:secret').decode()}"})
    get_user_model().objects.create_superuser("root", password="secret")
    pause, origin = b'{"Until": "2999-12-31T00:00:00Z"}', {"Origin": "https://elsewhere.example"}
    refused = client.generic("POST", f"{CONSUMER}/pause", pause, type, headers=origin)
    assert (refused.status_code, refused.json()["code"]) == (415, "unsupported_media_type")
    assert Consumer.objects.get().paused_until is None
    json = "Application/JSON; charset=utf-8"
    for headers, sent in ((origin, json), ({}, type)):
        answer = client.generic("POST", f"{CONSUMER}/pause", pause, sent, headers=headers)
        assert answer.status_code == 200


@quick_passwords
@pytest.mark.parametrize("scheme", ["Token nonsense", "Basic bm9ib2R5Om5vbmU=", "Basic ?", "Token"])
def test_a_login_that_is_wrong_is_401_even_where_all_is_open(
    scheme: str, orders: Subscription
) -> None:
    with override_settings(PULLJOBS={"API_ACCESS": "open"}):
        answer = Client().get(CHANNEL, headers={"Authorization": scheme})
    assert answer.status_code == 401
    assert answer["Content-Type"].startswith("text/plain")


def test_read_only_lets_anybody_read_but_no_tokens_and_nothing_else(orders: Subscription) -> None:
    with override_settings(PULLJOBS={"API_ACCESS": "read-only"}):
        for url in READ:
            assert Client().get(url).status_code == 200
        assert "Token" not in Client().get(CHANNEL).json()
        for method, url, _permissions in WRITTEN:
            assert write(Client(), method, url).status_code == 401


def test_open_lets_anybody_do_all(orders: Subscription) -> None:
    with override_settings(PULLJOBS={"API_ACCESS": "open"}):
        made = write(Client(), "PUT", "/channel/invoices")
        assert (made.status_code, Client().get("/channel/invoices").status_code) == (200, 200)
        assert Client().get(f"{CONSUMER}/queued-jobs").status_code == 403


def test_without_required_tokens_consumers_are_who_they_say(orders: Subscription) -> None:
    with override_settings(PULLJOBS={"TOKENS_REQUIRED": False}):
        assert Client().get(f"{CONSUMER}/queued-jobs").status_code == 200
        assert Client().get("/channel/orders/consumer/nobody/queued-jobs").status_code == 401
        assert write(Client(), "PUT", CHANNEL).status_code == 401


@pytest.mark.parametrize(
    ("given", "warned"),
    [
        ({}, 0),
        ({"API_ACCESS": "read-only"}, 1),
        ({"API_ACCESS": "open", "TOKENS_REQUIRED": False}, 2),
    ],
)
def test_a_deploy_check_names_open_access(given: dict[str, Any], warned: int) -> None:
    with override_settings(PULLJOBS=given):
        problems = [check.id for check in run_checks(include_deployment_checks=True)]
    assert problems.count("pulljobs.W003") == warned


@pytest.mark.parametrize(
    ("address", "urls", "warned"),
    [
        ("", "example_project.urls", 1),
        ("https://broker.example.com/", "example_project.urls", 0),
        ("", "django.contrib.auth.urls", 0),
    ],
)
def test_a_deploy_check_names_an_address_that_callers_choose(
    address: str, urls: str, warned: int
) -> None:
    with override_settings(PULLJOBS={"ADDRESS": address}, ROOT_URLCONF=urls):
        problems = [check.id for check in run_checks(include_deployment_checks=True)]
    assert problems.count("pulljobs.W008") == warned


def test_an_access_that_is_none_is_an_error() -> None:
    """An unknown value of API_ACCESS is an error of the system checks."""
    with override_settings(PULLJOBS={"API_ACCESS": "readonly"}):
        assert "pulljobs.E009" in [check.id for check in run_checks()]


@pytest.mark.parametrize(
    "name", ["rest_framework.authentication.SesionAuthentication", "nowhere.Ours", "Ours"]
)
def test_a_login_that_is_not_there_is_an_error(name: str) -> None:
    """A class of API_AUTHENTICATION that cannot be imported is an error of the system checks."""
    with override_settings(PULLJOBS={"API_AUTHENTICATION": [name]}):
        [problem] = [check for check in run_checks() if check.id == "pulljobs.E023"]
    assert "PULLJOBS['API_AUTHENTICATION']: " in problem.msg


def test_without_the_app_of_tokens_the_other_logins_work(orders: Subscription) -> None:
    with modify_settings(INSTALLED_APPS={"remove": ["rest_framework.authtoken"]}):
        assert [type(authenticator).__name__ for authenticator in user_authenticators()] == [
            "SessionAuthentication",
            "BasicAuthentication",
        ]
        assert Client().get(CHANNEL, headers={"Authorization": "Token x"}).status_code == 401
        assert "pulljobs.W002" not in [check.id for check in run_checks()]
        named = {"API_AUTHENTICATION": ["rest_framework.authentication.TokenAuthentication"]}
        with override_settings(PULLJOBS=named):
            assert "pulljobs.W002" in [check.id for check in run_checks()]


def test_other_classes_can_take_the_place_of_ours(orders: Subscription) -> None:
    """API_AUTHENTICATION replaces the default classes, so that no token logs in."""
    named = {"API_AUTHENTICATION": ["rest_framework.authentication.SessionAuthentication"]}
    client = by_token(get_user_model().objects.create_superuser("root"))
    with override_settings(PULLJOBS=named):
        assert client.get(CHANNEL).status_code == 403
