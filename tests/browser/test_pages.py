"""The login that the demo prints opens the admin, and long names fit its pages."""

from typing import Final

from tests.browser.pages import NARROW, WIDE, Visitor, change_look, is_too_wide, temporary_rows

CONSUMER: Final = """
INSERT INTO pulljobs_consumer (
    id, name, title, channel_id, token_digest, created_at, changed_at, type, callback_url,
    lease_duration, retry_strategy, retry_delays, retry_cap, retry_jitter, max_retries,
    max_deliveries
)
SELECT
    %s, repeat('n', 250), title, channel_id, token_digest, created_at, changed_at, type,
    callback_url, lease_duration, retry_strategy, retry_delays, retry_cap, retry_jitter,
    max_retries, max_deliveries
FROM pulljobs_consumer WHERE name = 'census'
RETURNING id
"""
WIDEST_NAME: Final = (
    "Math.max(0, ...[...document.querySelectorAll('tbody th')].map(e => e.offsetWidth))"
)


def test_the_login_of_the_terminal_opens_the_admin(visitor: Visitor) -> None:
    page = visitor.open()
    assert page.get_by_role("heading", name="Site administration").is_visible()


def test_a_long_name_without_spaces_fits_the_screen(visitor: Visitor) -> None:
    id, wide, page = 7 << 40, [], visitor.page()
    with temporary_rows(visitor.site.project, id, {CONSUMER: 1}, ["pulljobs_consumer WHERE id"]):
        for path in ("dashboard/", *(f"consumer/{id}/{name}/" for name in ("change", "pause"))):
            page.goto(f"{visitor.site.address}pulljobs/{path}")
            for size in (WIDE, NARROW):
                change_look(page, "light", size)
                wide += [(path, size)] if is_too_wide(page) else []
                wide += [(path, size)] if page.evaluate(WIDEST_NAME) > WIDE[0] / 3 else []
    assert wide == []
