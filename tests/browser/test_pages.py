"""The login that the demo prints opens the admin."""

from tests.browser.pages import Visitor


def test_the_login_of_the_terminal_opens_the_admin(visitor: Visitor) -> None:
    page = visitor.open()
    assert page.get_by_role("heading", name="Site administration").is_visible()
