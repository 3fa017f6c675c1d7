"""The glossary defines the terms that the docs use, each in one sentence."""

import re
from typing import Final

from tests.guides import DOCS, pages

PAGE: Final = DOCS / "glossary.md"
CORE: Final = {
    "archive", "attempt", "blocked", "channel", "claim", "consumer", "deliver", "expire", "handler",
    "isolation", "job", "key", "kill", "lease", "lease_duration", "lease_token", "long poll",
    "low-water mark", "message", "node", "outcome", "priority", "producer", "publish", "reap",
    "redrive", "reject", "release", "renew", "retry", "settlement", "waiter", "worker",
}  # fmt: skip


def read_glossary() -> dict[str, str]:
    text = PAGE.read_text("utf-8")
    entries = re.findall(r"(?m)^(\S.*)\n: (.*(?:\n  .*)*)", text)
    return {term: " ".join(definition.split()) for term, definition in entries}


def test_the_core_terms_are_defined() -> None:
    assert read_glossary().keys() >= CORE


def test_each_definition_is_one_sentence() -> None:
    for term, definition in read_glossary().items():
        assert re.fullmatch(r"[A-Z].*\.", definition), term
        assert ". " not in definition, term


def test_every_term_is_used_on_another_page() -> None:
    text = " ".join(page.read_text("utf-8") for page in pages() if page != PAGE).lower()
    text = text.replace("_", " ").replace("\n", " ")
    unused = [
        term for term in read_glossary() if not re.search(rf"\b{term.replace('_', ' ')}", text)
    ]
    assert unused == []
